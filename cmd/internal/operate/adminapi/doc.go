// Package adminapi is the API for operators: what the rules are and what they do, where a key stands, resets, blocks, the
// kill switch, reloading. It has a listener of its own.
//
// Who may use it is decided here: by a token or a client's certificate, or by being on the same machine. A web page that
// somebody on that machine looks at may not, whatever name it gives the listener. Every change is one line in the log.
package adminapi
