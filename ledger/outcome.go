package ledger

// CallOutcomes are the words by which calls are counted: one for each record
// that decides a call.
var CallOutcomes = [...]string{"committed", "replay", "observed", "deny", "error", "cancelled", "void"}

// DenialReasons are the reasons of denials.
var DenialReasons = [...]string{ReasonToolNotAllowed, ReasonArgumentRule, ReasonInvalidArguments, ReasonInvalidRequest}

// Call is how the call ended that v decides, as an index into CallOutcomes, or
// -1 where v decides none: it is an intent, or an event of the ledger's own.
//
//	deny       refused, nothing touched
//	cancelled  given up by its caller, without an effect
//	error      failed; where its effect may be there all the same, it is in doubt too
//	void       an intent whose effect is known not to have happened, found after a crash or by a person
func (v *View) Call() int {
	switch {
	case !Is(v.Method, MethodCall):
		return -1
	case Is(v.Decision, Deny):
		return 3
	case Is(v.Reason, ReasonCancelled) && (Is(v.Decision, Void) || Is(v.Decision, Allow) && Is(v.Outcome, Error)):
		return 5
	case Is(v.Outcome, Error):
		return 4
	case Is(v.Outcome, Committed):
		return 0
	case Is(v.Outcome, Replay):
		return 1
	case Is(v.Outcome, Observed):
		return 2
	case Is(v.Decision, Void):
		return 6
	}
	return -1
}
