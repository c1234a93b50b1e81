#include "textflag.h"

// PREFETCHW asks for a line that will be written, and so takes it from other processors at once.
#define PREFETCHW_AX BYTE $0x0F; BYTE $0x0D; BYTE $0x08
#define PREFETCHW_CX BYTE $0x0F; BYTE $0x0D; BYTE $0x09

// func prefetch(segment, slots unsafe.Pointer)
TEXT ·prefetch(SB), NOSPLIT, $0-16
	MOVQ segment+0(FP), AX
	MOVQ slots+8(FP), CX
	PREFETCHW_AX
	PREFETCHW_CX
	PREFETCHT0 64(CX)
	PREFETCHT0 128(CX)
	RET
