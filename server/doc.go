// Package server assembles a gated MCP server: tools behind the gate, over
// stdio behind the edge.
//
// A tool author makes a server, adds typed tools, and serves:
//
//	s, err := server.New(server.Config{Name: "deploys", Ledger: l, Policy: p, Results: d})
//	err = server.AddRead(s, &mcp.Tool{Name: "list_deploys"}, list)
//	err = server.AddMutation(s, &mcp.Tool{Name: "deploy"}, server.Mutation[DeployArgs, DeployResult]{Do: deploy, Look: look})
//	doubt, err := s.Recover(ctx)
//	err = s.ServeStdio(ctx, os.Stdin, os.Stdout)
//
// and gets the life of a call that package gate describes: the policy, the
// record of every decision, one effect per request id, replay and recovery.
//
// The arguments of a mutation are a struct with a string field named
// request_id in JSON. Its result is kept, durably, in Results before its
// outcome is recorded; a retry is answered from there. Between a crash of the
// process and that file only Look can tell whether the effect happened.
package server
