// Package demo implements `sluice demo`: a small API behind the gateway, ten rules, and synthetic clients.
package demo
