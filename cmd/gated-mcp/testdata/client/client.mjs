// Drives gated-mcp with the official TypeScript client over stdio, as an agent's host would.
//
//   node client.mjs ERA COMMAND [ARG…]     ERA: legacy, auto, or a protocol revision to pin, such as 2026-07-28
//
// The server inherits this process's environment. Each step is told as one JSON object on stdout before it is checked.
// Exit status 1, with the reason on stderr, at the first thing that is not as expected.
import assert from 'node:assert/strict';
import { Client, ProtocolError } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

const [era, command, ...args] = process.argv.slice(2);
if (!command) {
  console.error('usage: node client.mjs ERA COMMAND [ARG…]');
  process.exit(2);
}

const mode = era === 'legacy' || era === 'auto' ? era : { pin: era };
const client = new Client({ name: 'gated-mcp-client-test', version: '1.0.0' }, { versionNegotiation: { mode } });
const noise = []; // messages that the client could not take; it skips lines that are no JSON
client.onerror = (error) => noise.push(String(error));

const note = { request_id: 'req-client-0001', text: 'gate aplicado: ação única' };

function tell(step, seen) {
  console.log(JSON.stringify({ step, ...seen }));
  return seen;
}

async function call(step, name, input) {
  const result = await client.callTool({ name, arguments: input });
  return tell(step, {
    isError: result.isError === true,
    structured: result.structuredContent ?? null,
    text: result.content.filter((part) => part.type === 'text').map((part) => part.text).join(''),
  });
}

async function refused(step, name, input) {
  try {
    const result = await client.callTool({ name, arguments: input });
    tell(step, { result });
  } catch (error) {
    if (!(error instanceof ProtocolError)) throw error;
    return tell(step, { code: error.code, message: error.message, data: error.data ?? null });
  }
  assert.fail(`${name} was answered with a result`);
}

async function main() {
  await client.connect(new StdioClientTransport({ command, args, env: process.env, stderr: 'inherit' }));
  tell('connect', { protocol: client.getNegotiatedProtocolVersion() });

  const { names } = tell('list', { names: (await client.listTools()).tools.map((tool) => tool.name).sort() });
  assert.deepEqual(names, ['read_ledger', 'write_note']);

  const commit = await call('commit', 'write_note', note);
  assert.deepEqual([commit.isError, commit.structured], [false, { request_id: note.request_id, status: 'committed' }]);

  const replay = await call('replay', 'write_note', note);
  assert.deepEqual([replay.isError, replay.structured], [false, { request_id: note.request_id, status: 'replay' }]);

  const conflict = await call('conflict', 'write_note', { ...note, text: 'other' });
  assert.equal(conflict.isError, true);

  const read = await call('read', 'read_ledger', {});
  assert.deepEqual([read.isError, read.structured], [false, { notes: [note] }]);

  const denied = await refused('denied', 'rm_rf', { path: 'target' });
  assert.equal(denied.code, -32602);
  assert.ok(denied.message.includes('tool denied: rm_rf'), denied.message);
  assert.equal(denied.data?.reason, 'tool_not_allowed');

  await client.close();
  assert.deepEqual(noise, []);
}

main().catch(async (error) => {
  console.error(`client.mjs: ${error.message}`, ...noise);
  await client.close().catch(() => {});
  process.exit(1);
});
