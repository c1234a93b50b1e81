package redisstore

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"strings"

	"github.com/sluiceproject/sluice"
)

// ErrConfig is wrapped by errors that persist until the configuration of the store or the server is changed: a wrong
// password, a missing permission, an untrusted certificate. [Open] returns such errors. If one occurs later, the error
// of a call wraps [sluice.ErrUnavailable] as well, so that fail modes apply.
var ErrConfig = errors.New("configuration error")

// retryClass classifies an error by whether the command may be sent again.
type retryClass uint8

const (
	mayHaveRun    retryClass = iota // unknown, so it is never sent again
	notRun                          // it did not run and may succeed if sent again
	wrongServer                     // it did not run, because the server is not, or not yet, the right one
	refused                         // it did not run, and would not if sent again soon
	misconfigured                   // it did not run, and will not until the configuration changes
	unknownScript                   // it did not run: the server does not have the script
	closed                          // the client is closed
)

// replies classifies error replies of servers by their beginning.
var replies = []struct {
	begins  string
	verdict retryClass
	advice  string
}{
	{"NOSCRIPT", unknownScript, ""},
	{"READONLY", wrongServer, "this server is a replica: the URL must name the primary, or the sentinels"},
	{"LOADING", wrongServer, "the server is loading its dataset"},
	{"MASTERDOWN", wrongServer, "the server is a replica that has lost its primary"},
	{"NOREPLICAS", notRun, "fewer replicas than min-replicas-to-write are connected"},
	{"CLUSTERDOWN", notRun, "the Cluster does not serve this hash slot: see CLUSTER INFO"},
	{"TRYAGAIN", notRun, "the hash slot is being migrated"},
	{"MOVED", notRun, "the hash slot was moved"},
	{"ASK", notRun, "the hash slot is being migrated"},
	{"OOM", refused, "the server is out of memory: raise maxmemory; keep maxmemory-policy at noeviction, or counts are lost"},
	{"MISCONF", refused, "the server cannot write to its disk and rejects writes: see its log"},
	{"BUSY", refused, "a script or function has been running for too long: end it with SCRIPT KILL or FUNCTION KILL"},
	{"UNKILLABLE", refused, "a script that cannot be killed has been running for too long"},
	{"max number of clients", refused, "the server has reached its maximum number of clients: raise maxclients"},
	{"NOAUTH", misconfigured, "the server requires a password: set it in Config.URL or Config.PasswordFile"},
	{"WRONGPASS", misconfigured, "wrong user or password: see Config.URL and Config.PasswordFile"},
	{"NOPERM", misconfigured, "the user lacks a permission: the documentation of package redisstore lists them"},
	{"DENIED", misconfigured, "the server is in protected mode: set a password on the server, or bind it to an address"},
	{"AUTH", misconfigured, "the server has no password: remove it from Config.URL"},
	{"Client sent AUTH", misconfigured, "the server has no password: remove it from Config.URL"},
	{"invalid password", misconfigured, "see Config.URL and Config.PasswordFile"},
	{"invalid DB index", misconfigured, "the server does not have the database number of Config.URL"},
	{"DB index", misconfigured, "the server does not have the database number of Config.URL"},
	{"unknown command", misconfigured, "the server lacks a command: Redis 6.2 or newer, or Valkey, with scripting enabled is required"},
}

// inScript lists the errors that older servers wrap in an error of the script whose command failed. Such a command
// changes nothing, and the script stops at the first one.
var inScript = []string{"READONLY", "OOM", "MISCONF", "NOREPLICAS", "NOPERM"}

// errNotYet is the error of calls between two attempts to connect.
var errNotYet = errors.New("not connected, waiting before the next attempt")

// classify returns the class of an error, and advice for the operator.
func classify(err error) (retryClass, string) {
	var (
		said     ServerError
		dial     *net.OpError
		unsigned *tls.CertificateVerificationError
		unknown  x509.UnknownAuthorityError
		record   tls.RecordHeaderError
		alert    tls.AlertError
	)
	switch {
	case errors.As(err, &said):
		return classifyReply(string(said))
	case errors.Is(err, sluice.ErrClosed):
		return closed, ""
	case errors.Is(err, ErrConfig):
		return misconfigured, ""
	case errors.As(err, &unsigned), errors.As(err, &unknown):
		return misconfigured, "the server's certificate is not trusted: set Config.TLS.RootCAs to its CA, and ServerName if the certificate is for another name"
	case errors.As(err, &record):
		return misconfigured, "the server does not use TLS on this port: use its TLS port, or redis:// for connections without TLS"
	case errors.As(err, &alert), err != nil && strings.Contains(err.Error(), "remote error: tls:"):
		return misconfigured, "the server rejects the client certificate, or requires one: see Config.TLS.Certificates"
	case errors.Is(err, errNotYet):
		return refused, ""
	case errors.As(err, &dial) && dial.Op == "dial":
		return notRun, ""
	}
	return mayHaveRun, ""
}

func classifyReply(said string) (retryClass, string) {
	said = strings.TrimPrefix(said, "ERR ") // which some clients strip
	if begins, inside, found := strings.Cut(said, ": -"); found && strings.HasPrefix(begins, "Error running script") {
		for _, word := range inScript {
			if strings.HasPrefix(inside, word+" ") {
				said = inside
			}
		}
	}
	for _, r := range replies {
		if strings.HasPrefix(said, r.begins) {
			return r.verdict, r.advice
		}
	}
	return mayHaveRun, ""
}
