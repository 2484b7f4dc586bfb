/* Makes one allocation or one write of this process fail, on purpose: see faults.py. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { NOTHING, ALLOCATION, WRITE };

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

static volatile int armed = NOTHING;
static long left = 0;
static int told = -1;

/* Makes the n-th event of a kind fail from now on, and tells it on a descriptor. */
void fault_arm(int kind, long n, int descriptor) {
    left = n;
    told = descriptor;
    armed = kind;
}

static int fails(int kind) {
    if (armed != kind || __atomic_sub_fetch(&left, 1, __ATOMIC_RELAXED) != 0) return 0;
    syscall(SYS_write, told, "!", 1);
    return 1;
}

static int short_of_memory(void) {
    if (!fails(ALLOCATION)) return 0;
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t size) { return short_of_memory() ? NULL : __libc_malloc(size); }
void *calloc(size_t n, size_t size) { return short_of_memory() ? NULL : __libc_calloc(n, size); }
void *realloc(void *old, size_t size) {
    return size && short_of_memory() ? NULL : __libc_realloc(old, size);
}
void *memalign(size_t align, size_t size) {
    return short_of_memory() ? NULL : __libc_memalign(align, size);
}
void *aligned_alloc(size_t align, size_t size) { return memalign(align, size); }
int posix_memalign(void **result, size_t align, size_t size) {
    void *found = memalign(align, size);
    if (found == NULL) return ENOMEM;
    *result = found;
    return 0;
}
void *mmap(void *at, size_t size, int protection, int flags, int file, off_t offset) {
    if (flags & MAP_ANONYMOUS && short_of_memory()) return MAP_FAILED;
    return (void *)syscall(SYS_mmap, at, size, protection, flags, file, offset);
}

static int is_full(int file) {
    struct stat status;
    if (armed != WRITE || fstat(file, &status) || !S_ISREG(status.st_mode) || !fails(WRITE)) return 0;
    errno = ENOSPC;
    return 1;
}

ssize_t write(int file, const void *data, size_t size) {
    return is_full(file) ? -1 : syscall(SYS_write, file, data, size);
}
ssize_t pwrite(int file, const void *data, size_t size, off_t offset) {
    return is_full(file) ? -1 : syscall(SYS_pwrite64, file, data, size, offset);
}
ssize_t pwrite64(int file, const void *data, size_t size, off_t offset) {
    return pwrite(file, data, size, offset);
}
ssize_t writev(int file, const struct iovec *parts, int count) {
    return is_full(file) ? -1 : syscall(SYS_writev, file, parts, count);
}
int fsync(int file) { return is_full(file) ? -1 : (int)syscall(SYS_fsync, file); }
int fdatasync(int file) { return is_full(file) ? -1 : (int)syscall(SYS_fdatasync, file); }
int ftruncate(int file, off_t size) {
    return is_full(file) ? -1 : (int)syscall(SYS_ftruncate, file, size);
}
int ftruncate64(int file, off_t size) { return ftruncate(file, size); }
int rename(const char *from, const char *to) {
    if (fails(WRITE)) {
        errno = ENOSPC;
        return -1;
    }
    return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}
