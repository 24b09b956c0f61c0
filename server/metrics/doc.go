// Package metrics shows ledgers to Prometheus. It is the only user of
// client_golang, has a registry of its own, and reads a ledger as any reader
// does: it writes nothing into it.
//
// This comment is the specification of the series. Each has the label ledger,
// the absolute path of the directory.
//
// # From the ledger
//
// The totals are read from the records, from the first one on: they do not end
// with a process.
//
//	ledger_tool_calls_total{tool,outcome}         counter  decided calls
//	ledger_denials_total{tool,reason}             counter  those that were denied
//	ledger_calls_in_doubt{tool}                   gauge    intents that nothing closes, and that no process is at work on
//	ledger_records_total                          counter  records
//	ledger_head_seq                               gauge    position of the last record
//	ledger_last_record_timestamp_seconds          gauge    its wall clock; 0 where there is none
//	ledger_anchored_seq                           gauge    position of the last anchored record, by the receipts
//	ledger_unanchored_records                     gauge    records after it
//	ledger_anchor_last_run_timestamp_seconds      gauge    when anchoring was last tried; 0 for never
//	ledger_anchor_last_success_timestamp_seconds  gauge    when the head was last found or made anchored; 0 for never
//	ledger_readable                               gauge    1 where the last reading came to the end of the ledger, else 0
//
// # From a verification
//
// Where the ledger is verified by the process that is asked (ledgerctl exporter):
//
//	ledger_verify_last_run_timestamp_seconds      gauge    when a verification last ended; 0 for never
//	ledger_verify_last_success_timestamp_seconds  gauge    when one last ended as intact or anchored; 0 for never
//	ledger_verify_verdict{verdict}                gauge    1 for the last verdict, 0 for the others; unchecked before the first
//
// What is new is checked each time; everything at first, once a day, where a
// sealed segment is gone, and after a verdict that was neither good nor torn: a
// segment that is changed in its place is found within a day. A record that was read once must stay
// in the ledger, whatever head.json says: where it is gone the ledger is
// unchecked and verified at once, and tampered until the record is back or the
// checkpoint file, which knows it, is deleted. A directory that cannot be listed
// is unchecked.
//
// # From a server
//
// Of the one process that is asked (gated-mcp), since it began:
//
//	ledger_write_failures_total                   counter    records that could not be written
//	ledger_write_last_failure_timestamp_seconds   gauge      when that last happened; 0 for never: a counter that is born above 0 does not rise
//	ledger_append_duration_seconds                histogram  from the call of append to durable, or failed
//	ledger_call_duration_seconds{tool}            histogram  from the call to its answer
//
// # Label values
//
// They come from policies and closed sets alone; nothing that a client sends
// becomes one.
//
//	tool     a name that a policy allows or denies, else "other"
//	outcome  committed, replay, observed, deny, error, cancelled, void
//	reason   tool_not_allowed, argument_rule, invalid_arguments, invalid_request, else "other"
//	verdict  anchored, intact, torn, unchecked, tampered
//
// An outcome is that of [ledger.View.Call]: error is a call that failed,
// cancelled one that its caller gave up and that had no effect, void an intent
// whose effect is known not to have happened. A call that failed and was left
// in doubt counts as error then, and once more when it is closed.
//
// Every pair of a known tool with each outcome and reason is there at 0 from the
// start, also where there is no ledger yet. The totals of a ledger are not shown
// before it was read to its end once, so that no counter ever climbs through its
// past; ledger_readable is 0 until then, and after a restart until the next
// reading comes to the end. Where a ledger is absent or unreadable later, the
// last totals stay.
//
// A scrape reads what was appended since the last one, for up to two seconds.
//
// # When a total falls
//
// Totals are a function of the ledger and of the set of names. They fall where
// the ledger was cut or replaced, which the verdict says too, and the total of
// "other" where a policy names a tool whose calls were counted there.
package metrics
