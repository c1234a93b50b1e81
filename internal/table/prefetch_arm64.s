#include "textflag.h"

// func prefetch(segment, slots unsafe.Pointer)
TEXT ·prefetch(SB), NOSPLIT, $0-16
	MOVD segment+0(FP), R0
	MOVD slots+8(FP), R1
	PRFM (R0), PSTL1KEEP
	PRFM (R1), PSTL1KEEP
	PRFM 64(R1), PLDL1KEEP
	PRFM 128(R1), PLDL1KEEP
	RET
