package metrics

import (
	"slices"

	"github.com/auditledger/auditledger/ledger"
	"github.com/auditledger/auditledger/ledger/canon"
	"github.com/auditledger/auditledger/server/policy"
)

// other is the tool of every call whose name no policy knows.
const other = "other"

// names are the values of the label tool: what policies allow or deny, sorted,
// and "other" last. A tool that is called "other" is counted there too.
type names struct {
	list     []string
	recorded map[string]int // index in list, by the name in a record, as raw JSON
	called   map[string]int // the same, by the name as it is called
}

func namesOf(policies []*policy.Policy) *names {
	n := &names{recorded: map[string]int{}, called: map[string]int{}}
	var tools []string
	for _, p := range policies {
		allow, deny := p.Tools()
		tools = slices.Concat(tools, allow, deny)
	}
	for _, tool := range tools {
		if clipped := ledger.Clip(tool); clipped != other {
			n.list = append(n.list, clipped)
		}
	}
	slices.Sort(n.list)
	n.list = append(slices.Compact(n.list), other)
	for i, tool := range n.list {
		n.recorded[string(canon.AppendString(nil, tool))] = i
		n.called[tool] = i
	}
	for _, tool := range tools {
		n.called[tool] = n.called[ledger.Clip(tool)]
	}
	return n
}

// ofRecord is the index of the name of a record.
func (n *names) ofRecord(raw []byte) int {
	if i, ok := n.recorded[string(raw)]; ok {
		return i
	}
	return len(n.list) - 1
}

// ofCall is the index of a name as it is called.
func (n *names) ofCall(tool string) int {
	if i, ok := n.called[tool]; ok {
		return i
	}
	return len(n.list) - 1
}
