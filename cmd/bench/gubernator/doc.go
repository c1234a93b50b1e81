// Package gubernator pins mailgun/gubernator, a service that the scenario `service` measures beside Sluice. It is a tool
// of a module of its own, so that it is built with the dependencies it asks for.
package gubernator
