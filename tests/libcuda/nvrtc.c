/* An NVRTC of CUDA 12.9: it tells its version and does nothing else. */
int nvrtcVersion(int *major, int *minor) {
    *major = 12;
    *minor = 9;
    return 0;
}

#define NOTHING(name) int name(void) { return 1; }
NOTHING(nvrtcCreateProgram)
NOTHING(nvrtcDestroyProgram)
NOTHING(nvrtcAddNameExpression)
NOTHING(nvrtcCompileProgram)
NOTHING(nvrtcGetProgramLogSize)
NOTHING(nvrtcGetProgramLog)
NOTHING(nvrtcGetCUBINSize)
NOTHING(nvrtcGetCUBIN)
const char *nvrtcGetErrorString(int code) { return code == 0 ? "NVRTC_SUCCESS" : "NVRTC_ERROR"; }
