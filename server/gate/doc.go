// Package gate decides each call of a tool and gives each mutation one effect
// per request id.
//
// # The life of a call
//
//  1. The arguments are read once, strictly. Policy, digest and tool see that
//     one value; what is not canonical JSON by package canon's rules is refused.
//  2. The policy decides, and once more at the tool's own entry. A denial is
//     recorded, then answered with error -32602, "tool denied: NAME", and
//     data.reason. A tool that is not served is denied in the same words.
//  3. Arguments that the tool's schema refuses are recorded as denied and
//     answered as a result with isError, for the model to correct itself.
//  4. A read runs, is recorded as observed, and is then answered.
//  5. A mutation takes the lock of its request id. Then, by what is there:
//     the same payload, replay; another payload or tool, conflict; an earlier
//     call that may have had its effect, in doubt. Else its intent is made
//     durable, and only then its effect, and then its outcome is recorded.
//
// Where the policy names arguments that are paths (policy version 2, targets),
// what stands at them is looked at when the call comes in, and for a mutation
// again under the lock of its id, and once more when a record of the call is
// about to be written. The record holds both looks, of denials too; an intent
// holds the first. They are bounded: 2 s for each look of a call, 64 MiB of files
// and 10,000 entries for each of at most 16 targets; what is past that is
// recorded as not looked at, with the reason. They never decide.
//
// A call that the MCP SDK answers by itself, since it was cancelled before it
// began or for what it asked of the protocol, never comes here; the server has
// it recorded all the same, by Unreached, and the edge by Refused what was no
// valid request.
//
// Where a record cannot be written, nothing is touched and the call is
// answered with -32603; a denial is answered as a denial all the same. Where
// only the outcome of an effect could not be written, the caller gets the true
// result, with "auditledger/unrecorded": true in its _meta.
//
// # What a second call with one request id gets
//
//	the first call              the second, same payload         the second, other payload
//	denied, or refused          decided anew                     decided anew
//	failed, effect not there    runs                             runs
//	committed                   replay                           request_id_conflict
//	failed, effect not known    in_doubt, until it is resolved   in_doubt
//	killed, effect there        closed as committed, replay      closed as committed, conflict
//	killed, effect not there    closed as void, runs             closed as void, runs
//	killed, effect not known    in_doubt, until it is resolved   in_doubt
//	still running               waits, then as above             waits, then as above
//
// Request ids are one namespace for all tools of a ledger. Payloads are the
// same where their canonical forms are: é and é written as an escape are one
// payload, 1 and 1.0 are two.
package gate
