// Package rlstest is what a service that speaks Envoy's rate limit protocol must answer, as data: rules, requests and
// answers, in short texts. [Run] asks a server that runs; it knows neither how it was started nor what it is made of.
package rlstest
