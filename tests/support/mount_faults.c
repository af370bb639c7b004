/* A file system without locks and without fsync of folders: preloaded, it lets flock, lockf and such an fsync fail. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

static int fail(const char *name) {
    const char *number = getenv(name);
    errno = number ? atoi(number) : 0;
    return number != 0;
}

int flock(int descriptor, int operation) {
    int (*real)(int, int) = (int (*)(int, int))dlsym(RTLD_NEXT, "flock");
    return fail("FAULT_FLOCK") ? -1 : real(descriptor, operation);
}

int fsync(int descriptor) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    struct stat status;
    if (fstat(descriptor, &status) == 0 && S_ISDIR(status.st_mode) && fail("FAULT_FSYNC")) return -1;
    return real(descriptor);
}
