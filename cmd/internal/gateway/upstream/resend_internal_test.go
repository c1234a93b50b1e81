package upstream

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestResendWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent := time.Now()
		<-time.After(resendWithin)
		var in, late resend
		if !in.may(sent) || in.may(sent) {
			t.Error("within its time a request is sent again once")
		}
		<-time.After(1)
		if late.may(sent) {
			t.Error("a request is sent again although the connection took too long to have been closed unused")
		}
	})
}
