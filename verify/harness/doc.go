// Package harness runs a plan of mutations and decides after each one, by
// looking, whether to go on. The decision is not the model's, and that a tool
// answered with success is never a reason to go on. It knows nothing of MCP.
//
// This comment is the specification of a plan and of what is done with it.
//
// # Plan
//
// A plan is one JSON object, read strictly: what package canon refuses, a member
// that is not named here, another type or version, and an empty list are errors.
//
//	{
//	  "version": 1,
//	  "retries": 3,
//	  "timeout_ms": 30000,
//	  "steps": [
//	    {
//	      "name": "first note",
//	      "do": {"tool": "write_note", "args": {"request_id": "req-0001", "text": "one"}},
//	      "observe": {"tool": "read_ledger", "args": {}},
//	      "expect": [{"at": "/structuredContent/notes", "contains": {"request_id": "req-0001", "text": "one"}}],
//	      "undo": {"do": {…}, "observe": {…}, "expect": […]}
//	    }
//	  ]
//	}
//
//	version     always    1
//	retries     optional  how often one call is sent again whose answer was lost, 0 to 100; default 3
//	timeout_ms  optional  how long one answer may take, 1 to 3600000; default 30000
//	steps       always    in the order in which they are done
//	name        optional  for people
//	do          always    a mutation: tool, and args with a request_id, a string of its own in the plan
//	observe     always    a look: {"tool", "args"}, or {"snapshot": [PATH, …]}
//	expect      always    what the look must find: all of them
//	undo        optional  a compensation: do, observe and expect of its own
//
// # Looking
//
// The look at a tool finds its result as JSON, in MCP that of tools/call
// (structuredContent, content, isError). A look by snapshot finds an object with
// a member for each path, which is the entry of that path as package snapshot
// writes it: /notes~1a.json/sha256. Relative paths are taken from the working
// directory.
//
// An expectation is a place, a JSON Pointer (RFC 6901), and one of
//
//	equals    the value there is this one, by its canonical form
//	contains  a string has this part; an array has such an element; else the value has all that is in this one:
//	          of an object its members and they in turn such values, of all else an equal
//	absent    true: there is no such place
//
// equals and contains do not hold where there is no such place.
//
// # Deciding
//
//	DO        the mutation is sent; a lost answer is sent for again with the same request_id
//	OBSERVE   the look, sent for again where its answer was lost
//	CONTINUE  all expectations hold: the next step, or DONE
//	STOP      the state is inconclusive: an answer stayed lost, the look was refused or failed, or
//	          something in a snapshot is unknown, unstable or unreadable; or the state is another than
//	          expected, and not every step so far has a compensation; or a compensation was not proven
//	ROLLBACK  the state is another than expected, and every step so far has a compensation: they are
//	          run from the last to the first, each proven by its own look
//
// The answer to a mutation, good or bad, is noted and decides nothing: it may
// have been refused, and the state be as expected all the same, or the other
// way round. After a mutation whose answer stayed lost nobody looks: it may
// still be running.
//
// A lost answer is a call that ended without one: the server died, was not
// there, or took too long. Sending it again is safe only with tools that give a
// request_id at most one effect, which is what a gated server promises.
package harness
