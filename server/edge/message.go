package edge

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/auditledger/auditledger/ledger"
	"github.com/auditledger/auditledger/ledger/canon"
)

// MaxDepth is how deep the arrays and objects of a message may nest.
const MaxDepth = canon.MaxDepth

// Codes of JSON-RPC 2.0.
const (
	codeParse    = -32700
	codeRequest  = -32600
	codeParams   = -32602
	codeInternal = -32603
)

const (
	methodCall      = "tools/call"
	methodCancelled = "notifications/cancelled"
	methodListen    = "subscriptions/listen"
)

// A message is what the filter has to know of a line.
type message struct {
	id      []byte    // raw, of a request with a good id
	key     string    // the same, decoded: by what ids are compared
	listen  bool      // a request that the end of the session answers
	cancels string    // of notifications/cancelled: the key of its requestId
	call    *envelope // carries a tool call; set for refused lines too
}

// A refused says how a line is refused.
type refused struct {
	code int
	id   []byte // what the answer echoes; nil is null
	why  string // the message of the answer: fixed words and figures
	mute bool   // there is no answer
}

// refuse is a refusal under the rule that why names.
func refuse(code int, id []byte, why string) *refused {
	switch code {
	case codeParse:
		why = "parse error: " + why
	case codeRequest:
		why = "invalid request: " + why
	case codeParams:
		why = "invalid params: " + why
	}
	return &refused{code: code, id: id, why: why}
}

// inspect applies the rules of the package comment to line, which begins after
// lead bytes of white space and ends in none. All but whether an id is in
// flight; where m.key is set, that rule comes before the refusal returned.
func inspect(line []byte, lead int) (m message, r *refused) {
	var e envelope
	depth, fault := scan(line, e.visit)
	m.call = e.carried()
	switch {
	case fault != nil:
		fault.at += lead
		return m, refuse(codeParse, nil, fault.String())
	case line[0] == '[':
		return m, refuse(codeRequest, nil, "a batch; send each message on a line of its own")
	case line[0] != '{':
		return m, refuse(codeRequest, nil, "a message is an object")
	case depth > MaxDepth:
		return m, refuse(codeRequest, nil, fmt.Sprintf("nested deeper than %d levels", MaxDepth))
	case e.twin:
		return m, refuse(codeRequest, nil, "a member is a known one but for letter case")
	}
	method, named := text(e.method)
	var p params
	var outside = line
	if named && method == methodCall && isObject(e.params) {
		scan(e.params, p.visit)
		if p.twin {
			return m, refuse(codeRequest, nil, "a parameter is a known one but for letter case")
		}
		outside = without(line, p.arguments)
	}
	if _, err := canon.Append(nil, outside); err != nil {
		return m, refuse(codeRequest, nil, ambiguity(err))
	}

	key, good := idKey(e.id)
	if e.method == nil && (e.result != nil || e.err != nil) {
		return m, response(e, good)
	}
	if e.id != nil && !good {
		return m, refuse(codeRequest, nil, "an id is a string or an integer within 2^53-1 of zero")
	}
	m.id, m.key = e.id, key
	switch version, _ := text(e.jsonrpc); {
	case version != "2.0":
		return m, refuse(codeRequest, m.id, `jsonrpc must be "2.0"`)
	case e.method == nil:
		return m, refuse(codeRequest, m.id, "neither a method nor a result nor an error")
	case e.result != nil || e.err != nil:
		return m, refuse(codeRequest, m.id, "a method together with a result or an error")
	case !named || method == "":
		return m, refuse(codeRequest, m.id, "a method is a string that is not empty")
	}
	switch method {
	case methodCall:
		why := p.fault(e.params)
		switch {
		case m.id == nil:
			r = refuse(codeRequest, nil, "a tool call without an id")
			r.mute = true
		case why != "":
			r = refuse(codeParams, m.id, why)
		}
	case methodCancelled:
		if m.id != nil {
			return m, refuse(codeRequest, m.id, "a notification with an id")
		}
		if m.cancels = cancelled(e.params); m.cancels == "" {
			r = refuse(codeRequest, nil, "a cancellation without a good requestId")
			r.mute = true
		}
	case methodListen:
		m.listen = true
	}
	return m, r
}

// response checks a response of the client.
func response(e envelope, goodID bool) *refused {
	version, _ := text(e.jsonrpc)
	switch {
	case e.err != nil && (e.id == nil || string(e.id) == "null"):
		// The client's word for a message that it could not read. To answer it
		// could begin an endless exchange.
		r := refuse(codeRequest, nil, "an error that answers no request")
		r.mute = true
		return r
	case version != "2.0":
		return refuse(codeRequest, nil, `jsonrpc must be "2.0"`)
	case !goodID:
		return refuse(codeRequest, nil, "an id is a string or an integer within 2^53-1 of zero")
	case e.result != nil && e.err != nil:
		return refuse(codeRequest, nil, "a response with a result and an error")
	case e.err != nil:
		if code, message := errorOf(e.err); code == nil || message == nil {
			return refuse(codeRequest, nil, "an error is an object with an integer code and a message")
		}
	}
	return nil
}

// errorOf returns the raw code and message of the raw error object v, nil if
// they are absent or of another type.
func errorOf(v []byte) (code, message []byte) {
	if !isObject(v) {
		return nil, nil
	}
	scan(v, func(key, value []byte) {
		switch name, _ := lookup(key, "code", "message"); name {
		case "code":
			code = value
		case "message":
			message = value
		}
	})
	if !isInteger(code) {
		code = nil
	}
	if _, ok := text(message); !ok {
		message = nil
	}
	return code, message
}

// cancelled returns the key of params.requestId, "" if it is no good id.
func cancelled(params []byte) (key string) {
	if isObject(params) {
		scan(params, func(k, value []byte) {
			if name, _ := lookup(k, "requestId"); name != "" {
				key, _ = idKey(value)
			}
		})
	}
	return key
}

// An envelope is the members of a message, raw; of doubled ones the last. Nil
// is absent.
type envelope struct {
	jsonrpc, id, method, params, result, err []byte

	twin  bool      // a member is one of these but for letter case
	calls bool      // a member method, in whatever case, has the value tools/call
	inner *envelope // of an array: the first element that carries a call
}

// carried is the envelope of the call that e is, or has in it; nil if none.
func (e *envelope) carried() *envelope {
	if e.calls {
		return e
	}
	return e.inner
}

// visit is called by scan.
func (e *envelope) visit(key, value []byte) {
	if key == nil {
		if e.inner == nil && isObject(value) {
			var inner envelope
			if scan(value, inner.visit); inner.calls {
				e.inner = &inner
			}
		}
		return
	}
	name, twin := lookup(key, "jsonrpc", "id", "method", "params", "result", "error")
	if name == "method" {
		method, _ := text(value)
		e.calls = e.calls || method == methodCall
	}
	if twin {
		e.twin = true
		if name != "params" || e.params != nil {
			return
		}
		// Refused for its name; what it says is of use to the report of a call.
	}
	switch name {
	case "jsonrpc":
		e.jsonrpc = value
	case "id":
		e.id = value
	case "method":
		e.method = value
	case "params":
		e.params = value
	case "result":
		e.result = value
	case "error":
		e.err = value
	}
}

// params is the parameters of tools/call, like an envelope.
type params struct {
	name, arguments, meta, state, responses []byte
	twin                                    bool
}

// visit is called by scan.
func (p *params) visit(key, value []byte) {
	name, twin := lookup(key, "name", "arguments", "_meta", "requestState", "inputResponses")
	if twin {
		p.twin = true
		return
	}
	switch name {
	case "name":
		p.name = value
	case "arguments":
		p.arguments = value
	case "_meta":
		p.meta = value
	case "requestState":
		p.state = value
	case "inputResponses":
		p.responses = value
	}
}

// fault says what is wrong with the shape of the parameters, whose raw text is
// raw; "" if nothing.
func (p *params) fault(raw []byte) string {
	_, named := text(p.name)
	_, state := text(p.state)
	switch {
	case !isObject(raw):
		return "params must be an object"
	case !named:
		return "name must be a string"
	case p.arguments != nil && !isObject(p.arguments):
		return "arguments must be an object"
	case p.meta != nil && !isObject(p.meta):
		return "_meta must be an object"
	case p.state != nil && !state:
		return "requestState must be a string"
	case p.responses != nil && !isObject(p.responses):
		return "inputResponses must be an object"
	}
	return ""
}

// named returns the tool that a call names and the request_id among its
// arguments, as a record keeps it, as far as they can be read for certain.
func (e *envelope) named() (tool, request string) {
	request = ledger.MissingRequestID
	if !isObject(e.params) {
		return "", request
	}
	var p params
	scan(e.params, p.visit)
	tool, _ = text(p.name)
	if !isObject(p.arguments) {
		return tool, request
	}
	n := 0
	scan(p.arguments, func(key, value []byte) {
		if name, _ := lookup(key, "request_id"); name == "" {
			return
		}
		n++
		if v, err := canon.Parse(value); n > 1 || err != nil {
			request = ledger.MissingRequestID
		} else if request = v.Str(); v.Kind() != canon.String {
			request = string(v.Append(nil))
		}
	})
	return tool, request
}

// lookup returns which of names the raw key is; twin reports that it is so only
// but for letter case. The name is "" if it is none.
func lookup(key []byte, names ...string) (name string, twin bool) {
	const longest = len(`""`) + len(`\u0069`)*len("inputResponses")
	if len(key) > longest {
		return "", false
	}
	s, ok := canon.Unquote(key)
	if !ok {
		return "", false
	}
	for _, name := range names {
		if s == name {
			return name, false
		}
	}
	for _, name := range names {
		if strings.EqualFold(s, name) {
			return name, true
		}
	}
	return "", false
}

// idKey is what the raw id is compared by: ids are the same if their keys are.
// It is "" for what is no good id.
func idKey(raw []byte) (key string, ok bool) {
	if s, ok := text(raw); ok {
		return "s" + s, true
	}
	const most = 1<<53 - 1
	if len(raw) > len("-9007199254740991") || !isInteger(raw) || string(raw) == "-0" {
		return "", false
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil || n < -most || n > most {
		return "", false
	}
	return "n" + string(raw), true
}

// isInteger reports whether the raw value is a number without fraction and
// exponent that fits an int64.
func isInteger(raw []byte) bool {
	_, err := strconv.ParseInt(string(raw), 10, 64)
	return err == nil
}

// text decodes a raw string; ok is false for other values, and for nil.
func text(raw []byte) (s string, ok bool) { return canon.Unquote(raw) }

func isObject(raw []byte) bool { return len(raw) > 0 && raw[0] == '{' }

// without is line with null in the place of part, which lies in it. It is line
// itself if part is nil.
func without(line, part []byte) []byte {
	if part == nil {
		return line
	}
	// The capacities end at the same byte.
	at := cap(line) - cap(part)
	out := make([]byte, 0, len(line)-len(part)+len("null"))
	out = append(out, line[:at]...)
	out = append(out, "null"...)
	return append(out, line[at+len(part):]...)
}

// ambiguity says why package canon refuses a message.
func ambiguity(err error) string {
	var fault *canon.Error
	if errors.As(err, &fault) {
		switch fault.Reason {
		case canon.DuplicateKey:
			return "a member stands twice in one object"
		case canon.LoneSurrogate:
			return "half of a surrogate pair in a string"
		case canon.InvalidUTF8:
			return "a string is not UTF-8"
		case canon.NumberRange:
			return "a number is past binary64"
		}
	}
	return "the message can be read in two ways"
}

// trim returns line without the white space around it, and how much stood
// before.
func trim(line []byte) (trimmed []byte, lead int) {
	lead = space(line, 0)
	return bytes.TrimRight(line[lead:], " \t\r\n"), lead
}
