/* The functions of the CUDA runtime that the planner calls, for a device that is not there. */
#include <stddef.h>

enum { COMPUTE_CAPABILITY_MAJOR = 75, COMPUTE_CAPABILITY_MINOR = 76 }; /* see cudaDeviceAttr */

int processors;

int cudaGetDevice(int *device) { return *device = 0; }

int cudaDeviceGetAttribute(int *value, int attribute, int device) {
  *value = attribute == COMPUTE_CAPABILITY_MAJOR ? 9 : attribute == COMPUTE_CAPABILITY_MINOR ? 0 : processors;
  return 0;
}

const char *cudaGetErrorString(int error) { return ""; }

int cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *stream) { return 0; }

/* nvcc registers kernels with these when the library is loaded; it has none. */
void **__cudaRegisterFatBinary(void *binary) { return NULL; }
void __cudaRegisterFatBinaryEnd(void **handle) {}
void __cudaUnregisterFatBinary(void **handle) {}
void __cudaRegisterVar(void **h, char *a, char *b, const char *n, int e, size_t s, int c, int g) {}
char __cudaInitModule(void **handle) { return 0; }
