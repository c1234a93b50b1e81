// Package gubernator pins mailgun/gubernator, a service that the scenario `service` compares with Sluice. It is a
// separate module, so that it is built with its own versions of dependencies.
package gubernator
