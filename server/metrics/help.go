package metrics

// The series of anchoring. "ledgerctl anchor push --textfile" writes some too.
const (
	AnchorLastRun     = "ledger_anchor_last_run_timestamp_seconds"
	AnchorLastSuccess = "ledger_anchor_last_success_timestamp_seconds"
	AnchoredSeq       = "ledger_anchored_seq"
	UnanchoredRecords = "ledger_unanchored_records"
)

// The others.
const (
	toolCalls         = "ledger_tool_calls_total"
	denialsTotal      = "ledger_denials_total"
	callsInDoubt      = "ledger_calls_in_doubt"
	recordsTotal      = "ledger_records_total"
	headSeq           = "ledger_head_seq"
	lastRecord        = "ledger_last_record_timestamp_seconds"
	readable          = "ledger_readable"
	verifyLastRun     = "ledger_verify_last_run_timestamp_seconds"
	verifyLastSuccess = "ledger_verify_last_success_timestamp_seconds"
	verifyVerdict     = "ledger_verify_verdict"
	writeFailures     = "ledger_write_failures_total"
	lastWriteFailure  = "ledger_write_last_failure_timestamp_seconds"
	appendDuration    = "ledger_append_duration_seconds"
	callDuration      = "ledger_call_duration_seconds"
	labelLedger       = "ledger"
	labelTool         = "tool"
	labelOutcome      = "outcome"
	labelReason       = "reason"
	labelVerdict      = "verdict"
)

var helps = map[string]string{
	toolCalls:         "Decided calls of the ledger, by how they ended.",
	denialsTotal:      "Denied calls of the ledger, by reason.",
	callsInDoubt:      "Intents that no record closes, and that no process is at work on.",
	recordsTotal:      "Records of the ledger.",
	headSeq:           "Position of the last record.",
	lastRecord:        "Wall clock of the last record, 0 where there is none.",
	readable:          "1 where the last reading came to the end of the ledger, else 0.",
	AnchorLastRun:     "When anchoring was last tried, whatever became of it.",
	AnchorLastSuccess: "When the head of the ledger was last found or made anchored.",
	AnchoredSeq:       "Position of the last anchored record.",
	UnanchoredRecords: "Records after the last anchored one.",
	verifyLastRun:     "When the ledger was last verified, whatever came out; 0 for never.",
	verifyLastSuccess: "When a verification last found the ledger intact or anchored; 0 for never.",
	verifyVerdict:     "1 for the last verdict, 0 for the others; unchecked before the first.",
	writeFailures:     "Records that this process could not write.",
	lastWriteFailure:  "When this process last could not write a record; 0 for never.",
	appendDuration:    "Time from the call of append until the record was durable, or failed.",
	callDuration:      "Time from a call to its answer.",
}

// Help is the help text of a series. Every program of every version has the same
// one for a name: the node exporter wants it so of all files that it reads.
func Help(name string) string { return helps[name] }
