// Package listen provides the listeners of a service: gRPC, HTTP and other listeners with bounds for slow, broken and hostile
// clients; TLS with certificates that are reloaded when they change; health checks; and graceful shutdown without failed requests.
//
// It is independent of rate limiting. Callers register services and handlers.
package listen
