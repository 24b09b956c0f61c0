package ledger

// Methods of records.
const (
	MethodCall     = "tools/call"      // a call of a tool
	MethodRecovery = "ledger/recovery" // an unfinished line was set aside
	MethodReload   = "ledger/reload"   // a policy was loaded again, or refused
	MethodSeal     = "ledger/seal"     // the segment before was sealed
)

// Decisions.
const (
	Allow   = "allow"   // let through; where the outcome is committed or replay, the effect is durable
	Deny    = "deny"    // refused, nothing touched
	Pending = "pending" // an intent, or a failure that leaves its intent open
	Void    = "void"    // an intent whose effect is known not to have happened
)

// Outcomes.
const (
	Committed   = "committed"
	Replay      = "replay"
	Observed    = "observed"
	Error       = "error"
	NotExecuted = "not_executed"
	Intent      = "intent"
)

// Reasons: the closed set of words in the member reason.
const (
	ReasonToolNotAllowed    = "tool_not_allowed"    // the policy does not allow the tool, or no such tool is served
	ReasonArgumentRule      = "argument_rule"       // a rule of the policy on an argument; member rule says which
	ReasonInvalidArguments  = "invalid_arguments"   // not canonical JSON, or not what the tool's schema asks for
	ReasonInvalidRequest    = "invalid_request"     // a call in a message that is no valid request
	ReasonRequestIDConflict = "request_id_conflict" // the id belongs to another payload or tool
	ReasonInDoubt           = "in_doubt"            // an earlier call with this id may or may not have had its effect
	ReasonToolError         = "tool_error"          // the tool failed
	ReasonPanic             = "panic"               // the tool panicked
	ReasonCancelled         = "cancelled"           // the caller had given up by the time of the outcome
	ReasonRecovered         = "recovered"           // closed by looking at the effect after a crash
	ReasonResolved          = "resolved"            // closed by a person with ledgerctl doubt resolve
	ReasonTornLine          = "torn_line"           // an unfinished line was set aside
	ReasonInvalidPolicy     = "invalid_policy"      // a reload was refused, the policy before stays in force
)

// Values of request_id where the caller sent none.
const (
	MissingRequestID = "missing"
	ObserveRequestID = "observe"
)

// MaxText is how many code points of request_id and name a record keeps.
const MaxText = 256
