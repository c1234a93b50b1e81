// Package deploytest checks the deployment files with the API types of Kubernetes and the loader of Docker Compose. It is a
// separate module, so that no other module inherits their dependencies.
package deploytest
