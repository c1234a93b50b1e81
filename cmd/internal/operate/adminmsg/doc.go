// Package adminmsg declares the request and response bodies of the admin API, for adminapi, adminclient and the command
// line. docs/admin-api.md and the OpenAPI file describe each field.
//
// The service rejects a request body with an unknown field.
package adminmsg
