// Package checkapi is the HTTP API that decides requests, for clients that do not use Envoy's protocol. POST /v1/check takes
// the attributes of a request or descriptors and returns the decision in JSON. POST /v1/reserve charges an estimate and
// returns a token with which POST /v1/settle later settles the actual cost.
//
// The contract is openapi.yaml, which is served too. The tests check all requests and responses against it.
//
// Bodies are bounded and parsed strictly and completely before anything is charged. Unknown and duplicate fields are
// rejected, because they are probably mistakes, and a limit that silently does not apply is worse than an error.
package checkapi
