package harness

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/auditledger/auditledger/ledger"
	"github.com/auditledger/auditledger/ledger/canon"
)

// A Plan is a plan that was understood as a whole.
type Plan struct {
	Retries int
	Timeout time.Duration
	Steps   []Step
	Digest  ledger.Hash // of its canonical form
}

// A Step is a mutation and how it is judged.
type Step struct {
	Name string
	Move
	Undo *Move // nil where there is no compensation
}

// A Move is a mutation with the look that proves it.
type Move struct {
	Do      Call
	Observe Look
	Expect  []Expectation
}

// A Call is a call of a tool.
type Call struct {
	Tool      string
	Args      []byte // canonical JSON, an object
	RequestID string // of a mutation
}

// A Look is a call that changes nothing, or the paths of a snapshot.
type Look struct {
	Call
	Paths []string
}

// An Expectation is one condition on what a look finds.
type Expectation struct {
	At     string // a JSON Pointer
	Rule   string // equals, contains or absent
	Value  canon.Value
	tokens []string
}

// ParsePlan reads a plan. The error is one line that says where.
func ParsePlan(text []byte) (*Plan, error) {
	root, err := canon.Parse(text)
	if err != nil {
		return nil, err
	}
	p := &Plan{Retries: 3, Timeout: 30 * time.Second, Digest: ledger.Digest(root.Append(nil))}
	seen := map[string]string{}
	err = members("", root, map[string]func(string, canon.Value) error{
		"version": func(at string, v canon.Value) error {
			if n, ok := v.Int(); !ok || n != 1 {
				return fmt.Errorf("%s: not 1, the version that this program knows", at)
			}
			return nil
		},
		"retries": func(at string, v canon.Value) error {
			n, err := number(at, v, 0, 100)
			p.Retries = n
			return err
		},
		"timeout_ms": func(at string, v canon.Value) error {
			n, err := number(at, v, 1, 3600000)
			p.Timeout = time.Duration(n) * time.Millisecond
			return err
		},
		"steps": func(at string, v canon.Value) error {
			return elements(at, v, func(at string, v canon.Value) error {
				s, err := parseStep(at, v, seen)
				p.Steps = append(p.Steps, s)
				return err
			})
		},
	}, "version", "steps")
	if err != nil {
		return nil, err
	}
	return p, nil
}

func parseStep(at string, v canon.Value, seen map[string]string) (Step, error) {
	var s Step
	known := s.Move.members(seen)
	known["name"] = func(at string, v canon.Value) error { return text(at, v, &s.Name) }
	known["undo"] = func(at string, v canon.Value) error {
		s.Undo = new(Move)
		return members(at, v, s.Undo.members(seen), "do", "observe", "expect")
	}
	return s, members(at, v, known, "do", "observe", "expect")
}

// members reads the members of m. Seen are the request ids so far, and where.
func (m *Move) members(seen map[string]string) map[string]func(string, canon.Value) error {
	return map[string]func(string, canon.Value) error{
		"do": func(at string, v canon.Value) error {
			if err := m.Do.parse(at, v); err != nil {
				return err
			}
			args, _ := v.Get("args")
			id, _ := args.Get("request_id")
			if id.Kind() != canon.String || id.Str() == "" {
				return fmt.Errorf("%s.args.request_id: a mutation needs one, a string: without it no answer could be asked for again", at)
			}
			if where := seen[id.Str()]; where != "" {
				return fmt.Errorf("%s.args.request_id: the same as in %s: two mutations need two", at, where)
			}
			m.Do.RequestID = id.Str()
			seen[id.Str()] = at
			return nil
		},
		"observe": func(at string, v canon.Value) error {
			if paths, ok := v.Get("snapshot"); ok {
				if v.Len() != 1 {
					return fmt.Errorf("%s: snapshot stands alone, or tool and args", at)
				}
				return elements(at+".snapshot", paths, func(at string, v canon.Value) error {
					var path string
					err := text(at, v, &path)
					m.Observe.Paths = append(m.Observe.Paths, path)
					return err
				})
			}
			return m.Observe.Call.parse(at, v)
		},
		"expect": func(at string, v canon.Value) error {
			return elements(at, v, func(at string, v canon.Value) error {
				e, err := parseExpectation(at, v)
				m.Expect = append(m.Expect, e)
				return err
			})
		},
	}
}

func (c *Call) parse(at string, v canon.Value) error {
	return members(at, v, map[string]func(string, canon.Value) error{
		"tool": func(at string, v canon.Value) error { return text(at, v, &c.Tool) },
		"args": func(at string, v canon.Value) error {
			if v.Kind() != canon.Object {
				return fmt.Errorf("%s: %s where an object must stand", at, v.Kind())
			}
			c.Args = v.Append(nil)
			return nil
		},
	}, "tool", "args")
}

func parseExpectation(at string, v canon.Value) (Expectation, error) {
	e := Expectation{}
	rule := func(name string) func(string, canon.Value) error {
		return func(at string, v canon.Value) error {
			if e.Rule != "" {
				return fmt.Errorf("%s: there is %s already; an expectation has one rule", at, e.Rule)
			}
			if e.Rule, e.Value = name, v; name == "absent" && !v.Bool() {
				return fmt.Errorf("%s: can only be true; for a value that must be there, use equals or contains", at)
			}
			return nil
		}
	}
	err := members(at, v, map[string]func(string, canon.Value) error{
		"at": func(at string, v canon.Value) error {
			if v.Kind() != canon.String {
				return fmt.Errorf("%s: %s where a JSON Pointer must stand", at, v.Kind())
			}
			var err error
			e.At = v.Str()
			if e.tokens, err = parsePointer(e.At); err != nil {
				return fmt.Errorf("%s: %w", at, err)
			}
			return nil
		},
		"equals": rule("equals"), "contains": rule("contains"), "absent": rule("absent"),
	}, "at")
	if err == nil && e.Rule == "" {
		err = fmt.Errorf("%s: no rule in it; the rules are equals, contains and absent", at)
	}
	return e, err
}

// members reads an object: each member by its function, no other, and those of
// need in any case.
func members(at string, v canon.Value, known map[string]func(string, canon.Value) error, need ...string) error {
	name := at
	if at == "" {
		name = "the plan"
	} else {
		at += "."
	}
	if v.Kind() != canon.Object {
		return fmt.Errorf("%s: %s where an object must stand", name, v.Kind())
	}
	for _, n := range need {
		if _, ok := v.Get(n); !ok {
			return fmt.Errorf("%s%s: missing", at, n)
		}
	}
	for key, m := range v.Members() {
		read := known[key]
		if read == nil {
			return fmt.Errorf("%s%s: unknown member", at, ledger.Escape(key))
		}
		if err := read(at+key, m); err != nil {
			return err
		}
	}
	return nil
}

func elements(at string, v canon.Value, f func(string, canon.Value) error) error {
	if v.Kind() != canon.Array || v.Len() == 0 {
		return fmt.Errorf("%s: not a list with something in it", at)
	}
	i := 0
	for e := range v.Elems() {
		if err := f(fmt.Sprintf("%s[%d]", at, i), e); err != nil {
			return err
		}
		i++
	}
	return nil
}

func text(at string, v canon.Value, to *string) error {
	if v.Kind() != canon.String || v.Str() == "" {
		return fmt.Errorf("%s: not a text with something in it", at)
	}
	*to = v.Str()
	return nil
}

func number(at string, v canon.Value, least, most int64) (int, error) {
	n, ok := v.Int()
	if !ok || n < least || n > most {
		return 0, fmt.Errorf("%s: no integer from %d to %d", at, least, most)
	}
	return int(n), nil
}

// parsePointer reads a JSON Pointer.
func parsePointer(s string) ([]string, error) {
	if s == "" {
		return nil, nil
	}
	if s[0] != '/' {
		return nil, errors.New(`a JSON Pointer is empty or begins with "/"`)
	}
	tokens := strings.Split(s[1:], "/")
	for i, t := range tokens {
		if strings.Contains(strings.NewReplacer("~0", "", "~1", "").Replace(t), "~") {
			return nil, errors.New(`in a JSON Pointer "~" is written ~0, and "/" in a name ~1`)
		}
		tokens[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(t)
	}
	return tokens, nil
}
