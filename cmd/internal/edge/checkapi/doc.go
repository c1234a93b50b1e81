// Package checkapi answers over HTTP whether something may go on, for those who do not speak Envoy's protocol: POST
// /v1/check with what is known of a request, or with descriptors, and JSON back. POST /v1/reserve spends an estimate and
// gives a token with which POST /v1/settle says later what it really was.
//
// The contract is openapi.yaml, which is served too. The tests hold it and the handlers to each other.
//
// What is sent is bounded and read strictly, all of it before anything is counted: a field that nobody knows, or that is
// there twice, is more likely a mistake than meant, and a limit that silently does not apply is worse than an error.
package checkapi
