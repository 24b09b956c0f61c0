// Package tracing sends the spans of calls to an OpenTelemetry collector. It is
// the only user of the OpenTelemetry SDK; package gate declares what it needs
// of it.
//
// # Spans
//
// A call that reaches the gate is one span of kind server, below the one that traceparent and
// tracestate in the _meta of its request name. Its parts are spans below it:
//
//	tools/call TOOL   the call, from its reading to its answer; "tools/call" where no such tool is served
//	  decide          the policy, when the call comes in
//	  intent          the intent record, until it is durable
//	  effect          the effect of a mutation, until it is durable
//	  read            the run of a tool that changes nothing
//	  outcome         any other record of the call, until it is durable
//
// What a tool traces itself is below effect or read: its context carries the
// span.
//
// # Attributes
//
// Names are those of the semantic conventions for MCP (OpenTelemetry, status
// Development), and of the record. Arguments, results and texts of errors are
// never among them.
//
//	request_id                on every span: as in the record, but that decide of a read bears what
//	                          the caller sent, and its record says observe
//	mcp.method.name           tools/call
//	gen_ai.operation.name     execute_tool
//	gen_ai.tool.name          as called, at most 256 code points
//	mcp.protocol.version      where the request names it in its _meta
//	network.transport         pipe
//	error.type                tool_error, the code of a JSON-RPC error, or the reason of the record
//	rpc.response.status_code  of a JSON-RPC error
//	ledger.decision, ledger.outcome, ledger.reason, ledger.seq
//	                          on intent and outcome: the record, and where it stands
//
// # Environment
//
// The variables are those of the OpenTelemetry specification. Spans are sent as
// OTLP over HTTP, in protobuf:
//
//	OTEL_TRACES_EXPORTER      otlp turns tracing on, none off; what else there is, is refused
//	OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT
//	                          where to, a URL of http or https; either of them turns tracing on too; http://localhost:4318
//	OTEL_SDK_DISABLED         true turns it off
//	OTEL_EXPORTER_OTLP_PROTOCOL, OTEL_EXPORTER_OTLP_TRACES_PROTOCOL
//	                          http/protobuf, else refused
//	OTEL_EXPORTER_OTLP_HEADERS, _TIMEOUT, _COMPRESSION, _CERTIFICATE …
//	OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES
//	OTEL_TRACES_SAMPLER, OTEL_TRACES_SAMPLER_ARG, OTEL_BSP_*, OTEL_SPAN_*
//	                          as the SDK for Go reads them; numbers of OTEL_BSP_* that it cannot take are refused
//
// What cannot be, and would trace nothing, is refused. What the SDK cannot read
// and goes on without is a log line, which holds no header.
//
// With none of them there is no tracing: nothing is allocated, and nothing is
// connected to.
//
// # When the collector is away
//
// Spans are gathered for a second and wait in a queue of bounded length; where it
// is full they are dropped in silence, and so are those of the 5 s after the
// collector took none. No call waits for them. What else goes wrong is a log
// line, at most one a minute. A span holds none of the text of its call.
package tracing
