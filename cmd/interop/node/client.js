// Sends the requests from standard input, one per line in protobuf's JSON format, to the server given as the argument,
// and prints the responses in the form that node_test.go reads. The .proto files are those of grpc-js.
'use strict';

const path = require('path');
const readline = require('readline');
const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');

const deps = path.join(path.dirname(require.resolve('@grpc/grpc-js-xds/package.json')), 'deps');
const definition = loader.loadSync('envoy/service/ratelimit/v3/rls.proto', {
  longs: Number,
  enums: String,
  defaults: true,
  includeDirs: ['envoy-api', 'googleapis', 'protoc-gen-validate', 'xds'].map((dir) => path.join(deps, dir)),
});
const { RateLimitService } = grpc.loadPackageDefinition(definition).envoy.service.ratelimit.v3;
const client = new RateLimitService(process.argv[2], grpc.credentials.createInsecure());

// These .proto files are older than this unit.
const units = { 7: 'WEEK' };

function status(s) {
  const limit = s.currentLimit;
  return {
    code: s.code,
    limit: limit ? `${limit.requestsPerUnit} ${units[limit.unit] || limit.unit} ${limit.name}` : 'none',
    remaining: s.limitRemaining,
    reset: s.durationUntilReset ? s.durationUntilReset.seconds : -1,
  };
}

function ask(request) {
  return new Promise((resolve) => {
    const deadline = new Date(Date.now() + 30000);
    client.shouldRateLimit(request, { deadline }, (error, res) => {
      if (error) {
        resolve({ error: `${error.code} ${error.details}` });
        return;
      }
      resolve({
        overall: res.overallCode,
        statuses: res.statuses.map(status),
        headers: res.responseHeadersToAdd.map((h) => `${h.key}: ${h.value}`),
      });
    });
  });
}

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    console.log(JSON.stringify(await ask(JSON.parse(line))));
  }
  client.close();
}

main();
