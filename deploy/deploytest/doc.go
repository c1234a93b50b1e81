// Package deploytest reads the files for installing Sluice as those do for whom they are: the types of Kubernetes' API and
// the loader of Docker Compose. It is a module of its own, so that nobody inherits their dependencies.
package deploytest
