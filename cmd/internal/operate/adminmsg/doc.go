// Package adminmsg declares the messages of the admin API once: adminapi answers with them, and adminclient and the command
// line read them. docs/api.md and the OpenAPI file say what each field means.
//
// What is sent to the service has exactly the fields that it knows: it refuses a body with others.
package adminmsg
