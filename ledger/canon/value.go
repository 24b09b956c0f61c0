package canon

import (
	"iter"
	"sort"
	"strconv"
)

// A Kind is the kind of a JSON value.
type Kind uint8

const (
	Null Kind = iota
	Bool
	Number
	String
	Array
	Object
)

// String returns the kind's name in lower case.
func (k Kind) String() string {
	switch k {
	case Null:
		return "null"
	case Bool:
		return "bool"
	case Number:
		return "number"
	case String:
		return "string"
	case Array:
		return "array"
	case Object:
		return "object"
	}
	return "kind(" + strconv.Itoa(int(k)) + ")"
}

// A Value is a parsed JSON value. It cannot change, so it may be copied and
// used from several goroutines at once. A part of a Value keeps the whole in
// memory. The zero Value is null.
type Value struct {
	tree *tree
	i    uint32
}

// A tree is what a parser found, in memory of its own.
type tree struct {
	text  string
	nodes []node
	order []uint32
}

// Parse returns the value of src, which is one JSON value with white space
// around it, or an *Error. The Value shares no memory with src.
func Parse(src []byte) (Value, error) {
	p := newParser()
	defer p.free()
	if err := p.parse(src); err != nil {
		return Value{}, err
	}
	t := &tree{text: string(p.text), nodes: make([]node, len(p.nodes))}
	copy(t.nodes, p.nodes)
	if len(p.order) > 0 {
		t.order = make([]uint32, len(p.order))
		copy(t.order, p.order)
	}
	return Value{tree: t}, nil
}

func (v Value) node() node {
	if v.tree == nil {
		return node{}
	}
	return v.tree.nodes[v.i]
}

// keys returns the key nodes of an object, sorted, and nothing for others.
func (v Value) keys() []uint32 {
	n := v.node()
	if n.kind != Object {
		return nil
	}
	return v.tree.order[n.a : n.a+n.n]
}

func (t *tree) str(i uint32) string {
	n := &t.nodes[i]
	return t.text[n.a : n.a+n.n]
}

// Kind returns the kind of v.
func (v Value) Kind() Kind { return v.node().kind }

// Get returns the member of an Object whose decoded key is exactly key. It
// finds none in other kinds.
func (v Value) Get(key string) (Value, bool) {
	keys := v.keys()
	i := sort.Search(len(keys), func(i int) bool { return v.tree.str(keys[i]) >= key })
	if i == len(keys) || v.tree.str(keys[i]) != key {
		return Value{}, false
	}
	return Value{v.tree, keys[i] + 1}, true
}

// Members returns the decoded keys and the values of an Object in the order of
// its keys, and nothing for other kinds.
func (v Value) Members() iter.Seq2[string, Value] {
	return func(yield func(string, Value) bool) {
		for _, k := range v.keys() {
			if !yield(v.tree.str(k), Value{v.tree, k + 1}) {
				return
			}
		}
	}
}

// Elems returns the elements of an Array in order, and nothing for other
// kinds.
func (v Value) Elems() iter.Seq[Value] {
	return func(yield func(Value) bool) {
		n := v.node()
		if n.kind != Array {
			return
		}
		i := v.i + 1
		for range n.n {
			if !yield(Value{v.tree, i}) {
				return
			}
			i = v.tree.nodes[i].next
		}
	}
}

// Len returns the number of elements of an Array or of members of an Object,
// and 0 for other kinds.
func (v Value) Len() int {
	if n := v.node(); n.kind == Array || n.kind == Object {
		return int(n.n)
	}
	return 0
}

// Str returns the decoded text of a String, and "" for other kinds.
func (v Value) Str() string {
	if v.Kind() != String {
		return ""
	}
	return v.tree.str(v.i)
}

// Bool returns whether v is true. It is false for other kinds than Bool.
func (v Value) Bool() bool {
	n := v.node()
	return n.kind == Bool && n.n == 1
}

// Int returns a Number that is written without fraction and exponent and fits
// an int64. It reports false for all else, 1.0 and 1e2 too.
func (v Value) Int() (int64, bool) {
	n := v.node()
	if n.kind != Number || n.n > uint32(len("-9223372036854775808")) {
		return 0, false
	}
	i, err := strconv.ParseInt(v.tree.str(v.i), 10, 64)
	return i, err == nil
}

// Append appends the canonical form of v to dst and returns the extended
// buffer.
func (v Value) Append(dst []byte) []byte {
	if v.tree == nil {
		return append(dst, "null"...)
	}
	return appendNode(dst, v.tree.text, v.tree.nodes, v.tree.order, v.i)
}
