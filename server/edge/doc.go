// Package edge is the strict line filter between stdin and stdout and the MCP
// SDK. The SDK alone ends the session at the first line that is no JSON, takes
// ids through binary64, keeps the last of two doubled members, drops requests
// without a word, quotes parameters in errors, and at the end of input cancels
// the calls that it has accepted. Behind a Filter it sees none of that:
//
//	stdin -> Filter.Run -> Filter.Reader -> SDK -> Filter.Writer -> stdout
//
// This comment is the specification.
//
// # Lines in
//
// A line ends with "\n"; one that the end of input cuts off is a line too. Blank
// lines are ignored. A line that no rule refuses is forwarded byte for byte,
// without the white space around it. The first rule that fits refuses:
//
//	the line                                                             code     id
//	longer than MaxLine bytes; the rest of it is read and dropped        -32600   null
//	not one JSON value, or a byte-order mark in front                    -32700   null
//	an array (a batch), or any other value but an object                 -32600   null
//	nested deeper than MaxDepth                                          -32600   null
//	a member that is a known one but for letter case (a)                 -32600   null
//	a doubled member however spelt, a lone surrogate, bytes that are
//	not UTF-8, or a number past binary64 (b)                             -32600   null
//	a response with an error and the id null, or none                    no answer
//	a response of another shape than JSON-RPC's, or with a bad id (c)    -32600   null
//	an id that is no string and no integer (c)                           -32600   null
//	an id of a request that is not answered yet                          -32600   null
//	"jsonrpc" other than "2.0"                                           -32600   echoed
//	no method and no response, or a method with a result or an error     -32600   echoed
//	a method that is no string, or an empty one                          -32600   echoed
//	tools/call without an id                                             no answer
//	tools/call with parameters of another shape (d)                      -32602   echoed
//	notifications/cancelled with an id                                   -32600   echoed
//	notifications/cancelled whose requestId is bad (c) or not in flight  no answer
//
// (a) Of the message: jsonrpc, id, method, params, result, error. Of the
// parameters of tools/call: name, arguments, _meta, requestState,
// inputResponses.
//
// (b) Everywhere but in params.arguments of a tools/call. There, the grammar
// and the depth are looked at, and nothing else: the gate reads the arguments,
// as they were sent, by the same rules, and its refusal is a record.
//
// (c) An integer is written without fraction, exponent and "-0", and lies
// within ±(2^53-1), where every reader agrees on it. 1 and "1" are two ids.
//
// (d) params is an object, name a string, arguments and _meta are absent or
// objects; so is inputResponses, and requestState is absent or a string.
//
// An answer says which rule it was and never quotes the line. A refused line
// that carried a tool call is reported to Config.Refused before it is answered:
// if a member method, in whatever case, has the value tools/call, in the object
// or in one element of a batch; in a line that is no JSON or too long, in the
// part that could be read.
//
// # Lines out
//
// Each message of the SDK is given to Out whole, by one Write, and never mixed
// with an answer of the filter. A response is passed on
// only if its request is in flight, which then it no longer is:
//
//	the response                              what is written
//	to a request that was cancelled           nothing
//	with an error of code 0                   code -32600 with a fixed message
//	with an error that begins "handling '"    its code with a fixed message: the SDK's quotes the parameters
//	any other                                 the same bytes
//
// What is no JSON-RPC message, or answers no request in flight, is not written.
//
// # End
//
// Run stops reading at the end of input, when its context is done, when Out
// fails, and when the SDK closes Reader or Writer. In the first three cases it
// then waits until each forwarded request has been answered, and only then ends
// the SDK's input, so that no context of a call is cancelled by the end.
// subscriptions/listen is answered by the end alone, and not waited for. After
// a failure of Out the SDK goes on to see successful writes, since it cancels
// what is running at the first failed one. Requests that are in flight when the
// SDK ends the session by itself are answered with -32603.
//
// Whoever assembles a server gives mcp.IOTransport a negative MaxLineLength
// (the cap is here), runs the SDK under a context that a signal does not cancel
// (Run's context is the one for that), and has SIGPIPE ignored, without which a
// closed stdout ends a Go program before Run can see it.
package edge
