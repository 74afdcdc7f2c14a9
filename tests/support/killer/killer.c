/* Kills its own process at one chosen change below one directory.
 *
 * Preloaded (LD_PRELOAD), it stands before the calls of libc that change files or names, and counts those that
 * touch something below the root. Where the count reaches `at`, the process gets a real SIGKILL: before the call,
 * in the middle of it (half of a write's bytes are written) or after it, before the caller sees it return.
 * Without `at` nobody is killed. Each counted call, or the fatal one alone, becomes a line of the trace, a file
 * outside the root: number, call, path relative to the root, size.
 *
 * Armed by the environment (KILLER_ROOT, KILLER_AT, KILLER_WHEN, KILLER_TRACE) or, in a forked child, by calling
 * killer_arm. The root must be a real path.
 *
 * Not seen: raw system calls, io_uring, splice, static programs, what libc does inside itself (stdio, mkstemp,
 * remove), and stores to a mapping; a shared writable mmap is counted, so that the trace shows the blind spot.
 * 64-bit Linux with glibc.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

_Static_assert(sizeof(long) == 8, "offsets are handed to the kernel in one register");

typedef char path_text[2 * PATH_MAX];
enum moment { NEVER, BEFORE, MIDDLE, AFTER };

static char root[PATH_MAX]; /* empty: not armed */
static long at;
static enum moment when;
static int trace = -1;
static atomic_long count;

void killer_arm(const char *new_root, long new_at, const char *new_when, const char *new_trace)
{
    if (trace >= 0) close(trace);
    trace = *new_trace ? open(new_trace, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666) : -1;
    at = new_at;
    when = *new_when == 'b' ? BEFORE : *new_when == 'm' ? MIDDLE : AFTER;
    count = 0;
    snprintf(root, sizeof root, "%s", new_root); /* last: from here on it counts */
}

static const char *env(const char *name) { return getenv(name) ? getenv(name) : ""; }

__attribute__((constructor)) static void arm_from_environment(void)
{
    if (*env("KILLER_ROOT"))
        killer_arm(env("KILLER_ROOT"), atol(env("KILLER_AT")), env("KILLER_WHEN"), env("KILLER_TRACE"));
}

/* --- whose path it is --------------------------------------------------------------------------------------- */

static const char *below(const char *path) /* relative to the root, or NULL */
{
    size_t size = strlen(root);
    if (strncmp(path, root, size)) return NULL;
    return path[size] == '/' ? path + size + 1 : path[size] ? NULL : ".";
}

static const char *path_of_fd(int fd, path_text into)
{
    char link[32];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, into, PATH_MAX - 1);
    into[size > 0 ? size : 0] = 0;
    return below(into);
}

static const char *path_at(int dir, const char *path, path_text into)
{
    path_text whole;
    if (dir == AT_FDCWD || *path == '/') snprintf(whole, sizeof whole, "./%s" + (*path == '/' ? 2 : 0), path);
    else snprintf(whole, sizeof whole, "/proc/self/fd/%d/%s", dir, path);
    for (size_t end = strlen(whole); end > 1 && whole[end - 1] == '/';) whole[--end] = 0;
    char *name = strrchr(whole, '/'); /* the last name may not exist yet: only its directory is resolved */
    *name = 0;
    if (!realpath(*whole ? whole : "/", into)) return NULL;
    snprintf(into + strlen(into), PATH_MAX, "/%s", name + 1);
    return below(into);
}

/* --- the moments of a call ---------------------------------------------------------------------------------- */

static void die(void)
{
    for (;;) syscall(SYS_kill, getpid(), SIGKILL);
}

static enum moment count_call(const char *call, const char *path, const char *arrow, const char *to, size_t size)
{
    long number = atomic_fetch_add(&count, 1) + 1;
    if (trace >= 0 && (at == 0 || number == at)) {
        char line[3 * PATH_MAX];
        int length = snprintf(line, sizeof line, "%ld\t%s\t%s%s%s\t%zu\n", number, call, path, arrow, to, size);
        syscall(SYS_write, trace, line, length); /* in one piece, and in the kernel before the process dies */
    }
    while (at && number > at) pause(); /* another thread is dying: nothing that comes after it may happen */
    if (number != at) return NEVER;
    if (when == BEFORE) die();
    return when;
}

static enum moment enter(const char *call, int fd, size_t size)
{
    path_text text;
    const char *path = *root ? path_of_fd(fd, text) : NULL;
    return path ? count_call(call, path, "", "", size) : NEVER;
}

static enum moment enter_at(const char *call, int dir, const char *name)
{
    path_text text;
    const char *path = *root ? path_at(dir, name, text) : NULL;
    return path ? count_call(call, path, "", "", 0) : NEVER;
}

static enum moment enter_pair(const char *call, int old_dir, const char *old, int new_dir, const char *new)
{
    path_text old_text, new_text;
    const char *from = *root ? path_at(old_dir, old, old_text) : NULL;
    const char *to = *root ? path_at(new_dir, new, new_text) : NULL;
    return from || to ? count_call(call, from ? from : "?", " -> ", to ? to : "?", 0) : NEVER;
}

static long leave(enum moment moment, long answer)
{
    if (moment != NEVER) die();
    return answer;
}

static size_t share(enum moment moment, size_t size) { return moment == MIDDLE ? size / 2 : size; }

static size_t total(const struct iovec *pieces, int n)
{
    size_t size = 0;
    for (int i = 0; i < n; i++) size += pieces[i].iov_len;
    return size;
}

static int share_of_pieces(enum moment moment, const struct iovec *pieces, int n, struct iovec *into)
{
    size_t left = share(moment, total(pieces, n));
    for (int i = 0; i < n; left -= into[i++].iov_len)
        into[i] = (struct iovec){pieces[i].iov_base, pieces[i].iov_len < left ? pieces[i].iov_len : left};
    return n;
}

/* --- the calls ---------------------------------------------------------------------------------------------- */

#define ALSO(other, name) extern __typeof__(name) other __attribute__((alias(#name)))
#define CALL(entered, ...) { enum moment m = entered; return leave(m, syscall(__VA_ARGS__)); }
#define CALL_PIECES(call, number, ...) {                                                                         \
    if (n < 0 || n > IOV_MAX) return errno = EINVAL, -1;                                                         \
    enum moment m = enter(call, fd, total(v, n));                                                                \
    struct iovec pieces[IOV_MAX];                                                                                \
    return leave(m, syscall(number, fd, pieces, share_of_pieces(m, v, n, pieces), ##__VA_ARGS__)); }

ssize_t write(int fd, const void *b, size_t size)
    CALL(enter("write", fd, size), SYS_write, fd, b, share(m, size))
ssize_t pwrite(int fd, const void *b, size_t size, off_t o)
    CALL(enter("pwrite", fd, size), SYS_pwrite64, fd, b, share(m, size), o)
ssize_t writev(int fd, const struct iovec *v, int n)
    CALL_PIECES("writev", SYS_writev)
ssize_t pwritev(int fd, const struct iovec *v, int n, off_t o)
    CALL_PIECES("pwritev", SYS_pwritev, o, 0L)
ssize_t pwritev2(int fd, const struct iovec *v, int n, off_t o, int flags)
    CALL_PIECES("pwritev", SYS_pwritev2, o, 0L, flags)
ssize_t sendfile(int fd, int in, off_t *o, size_t size)
    CALL(enter("sendfile", fd, size), SYS_sendfile, fd, in, o, share(m, size))
ssize_t copy_file_range(int in, off64_t *from, int fd, off64_t *o, size_t size, unsigned flags)
    CALL(enter("copy_file_range", fd, size), SYS_copy_file_range, in, from, fd, o, share(m, size), flags)
ALSO(pwrite64, pwrite);
ALSO(pwritev64, pwritev);
ALSO(pwritev64v2, pwritev2);
ALSO(sendfile64, sendfile);

int ftruncate(int fd, off_t size) CALL(enter("ftruncate", fd, size), SYS_ftruncate, fd, size)
int truncate(const char *path, off_t size) CALL(enter_at("truncate", AT_FDCWD, path), SYS_truncate, path, size)
int fallocate(int fd, int mode, off_t o, off_t size)
    CALL(enter("fallocate", fd, size), SYS_fallocate, fd, mode, o, size)
int posix_fallocate(int fd, off_t o, off_t size) { return fallocate(fd, 0, o, size) ? errno : 0; }
void *mmap(void *where, size_t size, int prot, int flags, int fd, off_t o)
{
    int stores = prot & PROT_WRITE && flags & MAP_SHARED && !(flags & MAP_ANONYMOUS);
    enum moment m = stores ? enter("mmap", fd, size) : NEVER;
    return (void *)leave(m, syscall(SYS_mmap, where, size, prot, flags, fd, o));
}
ALSO(ftruncate64, ftruncate);
ALSO(truncate64, truncate);
ALSO(fallocate64, fallocate);
ALSO(posix_fallocate64, posix_fallocate);
ALSO(mmap64, mmap);

int fsync(int fd) CALL(enter("fsync", fd, 0), SYS_fsync, fd)
int fdatasync(int fd) CALL(enter("fdatasync", fd, 0), SYS_fdatasync, fd)
int sync_file_range(int fd, off64_t o, off64_t size, unsigned flags)
    CALL(enter("sync_file_range", fd, size), SYS_sync_file_range, fd, o, size, flags)
int msync(void *where, size_t size, int flags) /* of whichever mapping: see mmap */
    CALL(*root ? count_call("msync", "?", "", "", size) : NEVER, SYS_msync, where, size, flags)

int renameat2(int old_dir, const char *old, int new_dir, const char *new, unsigned flags)
    CALL(enter_pair("rename", old_dir, old, new_dir, new), SYS_renameat2, old_dir, old, new_dir, new, flags)
int renameat(int old_dir, const char *old, int new_dir, const char *new)
{ return renameat2(old_dir, old, new_dir, new, 0); }
int rename(const char *old, const char *new) { return renameat2(AT_FDCWD, old, AT_FDCWD, new, 0); }
int linkat(int old_dir, const char *old, int new_dir, const char *new, int flags)
    CALL(enter_pair("link", old_dir, old, new_dir, new), SYS_linkat, old_dir, old, new_dir, new, flags)
int link(const char *old, const char *new) { return linkat(AT_FDCWD, old, AT_FDCWD, new, 0); }
int symlinkat(const char *to, int dir, const char *path)
    CALL(enter_at("symlink", dir, path), SYS_symlinkat, to, dir, path)
int symlink(const char *to, const char *path) { return symlinkat(to, AT_FDCWD, path); }
int unlinkat(int dir, const char *path, int flags)
    CALL(enter_at(flags & AT_REMOVEDIR ? "rmdir" : "unlink", dir, path), SYS_unlinkat, dir, path, flags)
int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }
int mkdirat(int dir, const char *path, mode_t mode)
    CALL(enter_at("mkdir", dir, path), SYS_mkdirat, dir, path, mode)
int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

static int open_at(int dir, const char *path, int flags, mode_t mode)
{
    enum moment m = flags & (O_CREAT | O_TRUNC) ? enter_at("open", dir, path) : NEVER;
    return leave(m, syscall(SYS_openat, dir, path, flags, mode));
}

static mode_t mode_of(int flags, va_list rest)
{
    return flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(rest, mode_t) : 0;
}

#define OPEN_AT(dir) {                                                                                           \
    va_list rest;                                                                                                \
    va_start(rest, flags);                                                                                       \
    mode_t mode = mode_of(flags, rest);                                                                          \
    va_end(rest);                                                                                                \
    return open_at(dir, path, flags, mode); }

int open(const char *path, int flags, ...) OPEN_AT(AT_FDCWD)
int openat(int dir, const char *path, int flags, ...) OPEN_AT(dir)
int creat(const char *path, mode_t mode) { return open_at(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
/* what fortified programs call */
int __open_2(const char *path, int flags) { return open_at(AT_FDCWD, path, flags, 0); }
int __openat_2(int dir, const char *path, int flags) { return open_at(dir, path, flags, 0); }
ALSO(open64, open);
ALSO(openat64, openat);
ALSO(creat64, creat);
ALSO(__open64_2, __open_2);
ALSO(__openat64_2, __openat_2);
