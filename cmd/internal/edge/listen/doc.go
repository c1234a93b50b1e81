// Package listen is what a service listens with: gRPC, HTTP and other listeners that hold against clients that are slow,
// broken or hostile; TLS whose certificates are read again when they change; health checks; and an end without failed
// requests.
//
// It knows nothing of limits. Who uses it registers services and handlers.
package listen
