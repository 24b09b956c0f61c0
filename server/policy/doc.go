// Package policy reads a policy file and decides calls of tools by it.
//
// This comment is the specification of versions 1 and 2.
//
// # File
//
// A policy is one JSON object in a regular file of at most MaxSize bytes:
//
//	{
//	  "version": 1,
//	  "allow": ["read_ledger", "write_note"],
//	  "deny": ["rm_rf"],
//	  "arg_rules": {
//	    "write_note": {
//	      "request_id": {"min_len": 8},
//	      "text": {"max_len": 2000}
//	    }
//	  }
//	}
//
//	member     presence  value
//	version    always    1, or 2 where there are targets
//	allow      optional  names of tools that may be called; absent is empty
//	deny       optional  names of tools that may not, whatever allow says
//	arg_rules  optional  tool, argument, then min_len or max_len or both: integers from 0 to MaxLen
//
// A file that is not understood as a whole is no policy: Parse returns an error
// and never part of a policy. It refuses what package canon refuses (what is not
// JSON, doubled keys however spelt, lone surrogates, bytes that are not UTF-8),
// a member that is not in the table, at every level, another type or version, an
// empty name, a name that stands twice in one list, min_len above max_len, and an
// object of rules with nothing in it, since it looks like a rule and is none.
//
// # Targets
//
// Version 2 adds two members, and changes nothing else:
//
//	"version": 2,
//	"targets": {"rm_rf": ["path"], "copy": ["from", "to"]},
//	"target_root": "/srv/work"
//
//	targets      optional  tool, then names of its arguments whose values are paths, at least one
//	target_root  optional  a directory; absent is the server's working directory; only with targets
//
// They decide nothing. With each call of such a tool, denied ones too, the gate
// looks at what stands at those paths, before and after, and the record says
// what it saw. So the record holds these paths, which are values of arguments:
// name none that may not be written down. A value is a path or a list of paths;
// relative ones are taken from the server's working directory, as the tool takes
// them. A path that does not lie in target_root, or that a link leads out of it,
// is recorded as not looked at.
//
// # Decision
//
// The first line that fits decides:
//
//	the tool is in deny                             denied, tool_not_allowed
//	the tool is not in allow                        denied, tool_not_allowed
//	a ruled argument is absent                      denied, argument_rule, "text.required"
//	a ruled argument is no string                   denied, argument_rule, "text.string"
//	it has more code points than max_len            denied, argument_rule, "text.max_len"
//	it has fewer code points than min_len           denied, argument_rule, "text.min_len"
//	else                                            allowed
//
// Names of tools and arguments are compared code point by code point, without
// folding and without normalisation: what only looks like an allowed name is
// not allowed. Arguments are taken in the order of their names. Where the
// arguments are no object, every ruled argument is absent.
package policy
