package redisstore

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/redis/rueidis"

	"github.com/sluiceproject/sluice"
)

// TestClassify checks the classes of real errors of servers and networks.
func TestClassify(t *testing.T) {
	reply := func(s string) error { return ServerError(s) }
	for _, c := range []struct {
		err  error
		want retryClass
	}{
		{reply("NOSCRIPT No matching script. Please use EVAL."), unknownScript},
		{reply("READONLY You can't write against a read only replica."), wrongServer},
		{reply("READONLY You can't write against a read only replica. script: 9a3e, on @user_script:12."), wrongServer},
		{reply("ERR Error running script (call to f_9a3e): @user_script:12: @user_script: 12: -READONLY You can't write against a read only replica."), wrongServer},
		{reply("LOADING Redis is loading the dataset in memory"), wrongServer},
		{reply("LOADING Valkey is loading the dataset in memory"), wrongServer},
		{reply("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'."), wrongServer},
		{reply("NOREPLICAS Not enough good replicas to write."), notRun},
		{reply("CLUSTERDOWN Hash slot not served"), notRun},
		{reply("CLUSTERDOWN The cluster is down"), notRun},
		{reply("TRYAGAIN Multiple keys request during rehashing of slot"), notRun},
		{reply("MOVED 3999 127.0.0.1:6381"), notRun},
		{reply("ASK 3999 127.0.0.1:6381"), notRun},
		{reply("OOM command not allowed when used memory > 'maxmemory'."), refused},
		{reply("ERR Error running script (call to f_9a3e): @user_script:12: @user_script: 12: -OOM command not allowed when used memory > 'maxmemory'."), refused},
		{reply("MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk."), refused},
		{reply("BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."), refused},
		{reply("ERR max number of clients reached"), refused},
		{reply("ERR max number of clients + cluster connections reached"), refused},
		{reply("NOAUTH Authentication required."), misconfigured},
		{reply("NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used"), misconfigured},
		{reply("WRONGPASS invalid username-password pair or user is disabled."), misconfigured},
		{reply("NOPERM User limiter has no permissions to run the 'evalsha' command"), misconfigured},
		{reply("DENIED Redis is running in protected mode because protected mode is enabled"), misconfigured},
		{reply("ERR AUTH <password> called without any password configured for the default user."), misconfigured},
		{reply("ERR DB index is out of range"), misconfigured},
		{reply("DB index is out of range"), misconfigured}, // as returned by rueidis
		{reply("ERR unknown command 'EVALSHA', with args beginning with: "), misconfigured},
		// An error in the script itself may occur after a write.
		{reply("ERR Error running script (call to f_9a3e): @user_script:12: attempt to index a nil value"), mayHaveRun},
		{reply("ERR value is not an integer or out of range script: 9a3e"), mayHaveRun},
		{reply("ERR user_script:1: it says: -READONLY but is not"), mayHaveRun},
		{&net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}, notRun},
		{fmt.Errorf("wrapped: %w", &net.OpError{Op: "dial", Err: errors.New("no route to host")}), notRun},
		{&net.OpError{Op: "read", Net: "tcp", Err: errors.New("connection reset by peer")}, mayHaveRun},
		{&net.OpError{Op: "write", Net: "tcp", Err: errors.New("broken pipe")}, mayHaveRun},
		{io.EOF, mayHaveRun},
		{io.ErrUnexpectedEOF, mayHaveRun},
		{context.DeadlineExceeded, mayHaveRun},
		{context.Canceled, mayHaveRun},
		{fmt.Errorf("%w: %w", errNotYet, io.EOF), refused},
		{&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, misconfigured},
		{x509.UnknownAuthorityError{}, misconfigured},
		{tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}, misconfigured},
		{errors.New("remote error: tls: certificate required"), misconfigured},
		{asError(rueidis.ErrClosing), closed},
		{errors.New("anything else"), mayHaveRun},
	} {
		got, advice := classify(c.err)
		if got != c.want {
			t.Errorf("%v: class %d, want %d", c.err, got, c.want)
		}
		err := unavailable(c.err)
		if errors.Is(err, sluice.ErrClosed) != (got == closed) || errors.Is(err, sluice.ErrUnavailable) == (got == closed) ||
			errors.Is(err, ErrConfig) != (got == misconfigured) || !strings.Contains(err.Error(), advice) {
			t.Errorf("%v: callers get %v", c.err, err)
		}
		if (got == misconfigured || got == refused) && advice == "" && !errors.Is(c.err, errNotYet) {
			t.Errorf("%v: no advice", c.err)
		}
	}
}

// countingCommander returns a given error and counts calls.
type countingCommander struct {
	calls int
	fail  func(call int) error
}

func (c *countingCommander) Do(context.Context, ...string) (any, error) {
	c.calls++
	return int64(1), c.fail(c.calls)
}
func (c *countingCommander) Cluster() bool { return false }
func (c *countingCommander) Primaries(context.Context) ([]Commander, error) {
	return []Commander{c}, nil
}

// TestSentAgain checks that commands that did not run are resent once, that those that may have run never are, and that
// at most 10 % of all commands are resent.
func TestSentAgain(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, 1},
		{ServerError("READONLY x"), 2},
		{ServerError("TRYAGAIN x"), 2},
		{&net.OpError{Op: "dial", Err: io.EOF}, 2},
		{ServerError("OOM x"), 1},
		{ServerError("NOAUTH x"), 1},
		{ServerError("BUSY x"), 1},
		{errNotYet, 1},
		{io.EOF, 1},
		{context.DeadlineExceeded, 1},
		{&net.OpError{Op: "read", Err: io.EOF}, 1},
	} {
		commander := &countingCommander{fail: func(int) error { return c.err }}
		s := sluice.Must(Open(Config{Commander: commander}))
		if err := s.do(context.Background(), "DEL", "k"); (err == nil) != (c.err == nil) || commander.calls != c.want {
			t.Errorf("%v: sent %d times, want %d; error %v", c.err, commander.calls, c.want, err)
		}
	}
	commander := &countingCommander{fail: func(int) error { return ServerError("TRYAGAIN x") }}
	s := sluice.Must(Open(Config{Commander: commander}))
	const calls = 200
	for range calls {
		_ = s.do(context.Background(), "DEL", "k")
	}
	if again := commander.calls - calls; again < calls/10 || again > calls/10+maxRetryBurst/retryCost {
		t.Errorf("%d of %d commands were resent", again, calls)
	}
	commander.calls = 0
	ctx, cancel := context.WithTimeout(context.Background(), retryPause/4)
	defer cancel()
	s.retries.spent.Store(0)
	if _ = s.do(ctx, "DEL", "k"); commander.calls != 1 {
		t.Errorf("sent %d times though the deadline had passed", commander.calls)
	}
}
