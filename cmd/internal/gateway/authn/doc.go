// Package authn tells who a request is from: by an API key, a signed token (JWT), or a user's name and password.
//
// Each is a [Method]. A [Chain] asks the methods of a route in turn, and is all that a gateway needs: [Chain.Admit] says who
// it is or how the request is refused, and [Chain.Strip] takes the credentials out of what is forwarded.
//
// What must hold:
//
//   - Credentials are in no log, error or identity, nor are they in the files: those hold hashes.
//   - The first method that finds credentials of its kind decides. Wrong ones are refused, and nothing else is tried.
//   - The time that a refusal takes does not tell how nearly right something was, nor who exists.
//   - A file that cannot be used never replaces one that could.
//   - What a client says in a header that is ours to set (X-User, say) is removed, whoever it is.
package authn
