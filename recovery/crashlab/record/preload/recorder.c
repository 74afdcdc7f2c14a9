/* Records what a process changes below one directory, and kills it or makes a call fail at a chosen call.
 *
 * This library is preloaded (LD_PRELOAD) and replaces the functions of libc that change files and names or make
 * them durable. Each call that concerns something below the root gets a number and becomes an event of the tape,
 * with its bytes, in the order in which calls took effect. For this order, one mutex, shared by all processes that
 * record to one tape, is held from before the call until its event is written. Marks (lines written to the marks
 * descriptor) are events of the same tape, so that acknowledgements have a position among the calls.
 *
 * At one chosen number the process group gets a real SIGKILL, before the call, in the middle of it (half of a
 * write's bytes are written) or after it; or the file system is shut down and the process killed; or the call
 * fails with an error, or writes half of its bytes. A failing sync does nothing.
 *
 * Recording begins by the environment (CRASHLAB_*, see `orders_from_environment`) or, in a forked child, by a call
 * of crashlab_arm.
 *
 * Not recorded: raw system calls, io_uring, splice, static programs, calls that libc makes internally (stdio,
 * mkstemp, remove), and writes to a mapping. The creation of a shared writable mapping is recorded, so that the
 * report can say that the file is not covered.
 * 64-bit Linux with glibc.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

_Static_assert(sizeof(long) == 8, "offsets are handed to the kernel in one register");

#define FS_IOC_SHUTDOWN 0x8004587dUL
#define SHUTDOWN_WITHOUT_LOG 2U

typedef char path_text[2 * PATH_MAX];

/* The same numbers as `Call` in tape.py. */
enum call {
    CREATE = 1, WRITE, TRUNCATE, ALLOCATE, SYNC, DATASYNC, RENAME, LINK, UNLINK, MKDIR, RMDIR, SYMLINK, MAP, MSYNC,
    SYNC_ALL, SYNC_RANGE, EXCHANGE, MARK
};
enum { DURABLE = 1, DIRECTORY = 2, INJECTED = 4 };
enum action { NOTHING, KILL_BEFORE, KILL_MIDDLE, KILL_AFTER, CUT, FAIL, SHORT };

struct orders {
    long at;            /* the number of the chosen call; 0: none */
    int action;
    int error;          /* of FAIL, and of the write after a SHORT one */
    int last;           /* FAIL: up to that number, whichever calls of the same kind */
    unsigned fails;     /* a bit for each kind of call that goes on failing */
};

struct header { /* of an event; "<IHHiiQQQqHHI" */
    uint32_t size;
    uint16_t call, flags;
    int32_t thread, error;
    uint64_t inode, offset, length;
    int64_t number;
    uint16_t path_size, target_size;
    uint32_t data_size;
} __attribute__((packed));

struct shared { pthread_mutex_t mutex; long count; int is_made; int short_error; };

static char root[PATH_MAX]; /* empty: not armed */
static int tape = -1, marks = -1;
static struct stat marks_file; /* a program that was started without them may use their descriptor for another file */
static struct orders orders;
static struct shared *shared;
static __thread int depth;

/* --- arming ------------------------------------------------------------------------------------------------- */

static void map_shared(const char *path)
{
    int fd = syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    syscall(SYS_ftruncate, fd, (long)sizeof *shared);
    shared = (struct shared *)syscall(SYS_mmap, 0L, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0L);
    syscall(SYS_close, fd);
    if (shared->is_made) return;
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&shared->mutex, &kind);
    shared->is_made = 1;
}

/* `place` is the tape's path; the file beside it is shared memory of all recorded processes. */
void crashlab_arm(const char *new_root, const char *place, int new_marks, const struct orders *new_orders)
{
    path_text beside;
    *root = 0;
    if (tape >= 0) syscall(SYS_close, tape);
    tape = syscall(SYS_openat, AT_FDCWD, place, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    snprintf(beside, sizeof beside, "%s.shared", place);
    map_shared(beside);
    marks = new_marks;
    if (syscall(SYS_newfstatat, marks, "", &marks_file, AT_EMPTY_PATH)) marks = -1;
    orders = *new_orders;
    snprintf(root, sizeof root, "%s", new_root); /* last, because recording begins here */
}

static const char *text(const char *name) { return getenv(name) ? getenv(name) : ""; }

__attribute__((constructor)) static void orders_from_environment(void)
{
    struct orders given = {
        .at = atol(text("CRASHLAB_AT")), .action = atoi(text("CRASHLAB_ACTION")), .error = atoi(text("CRASHLAB_ERROR")),
        .last = atoi(text("CRASHLAB_LAST")), .fails = strtoul(text("CRASHLAB_FAILS"), NULL, 10) };
    if (*text("CRASHLAB_ROOT"))
        crashlab_arm(text("CRASHLAB_ROOT"), text("CRASHLAB_TAPE"),
                     *text("CRASHLAB_MARKS") ? atoi(text("CRASHLAB_MARKS")) : -1, &given);
}

/* --- paths below the root ----------------------------------------------------------------------------------- */

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
    if (!*path) return NULL;
    if (dir == AT_FDCWD || *path == '/') snprintf(whole, sizeof whole, "./%s" + (*path == '/' ? 2 : 0), path);
    else snprintf(whole, sizeof whole, "/proc/self/fd/%d/%s", dir, path);
    for (size_t end = strlen(whole); end > 1 && whole[end - 1] == '/';) whole[--end] = 0;
    char *name = strrchr(whole, '/'); /* the last name may not exist yet: only its directory is resolved */
    *name = 0;
    if (!realpath(*whole ? whole : "/", into)) return NULL;
    snprintf(into + strlen(into), PATH_MAX, "/%s", name + 1);
    return below(into);
}

/* --- the tape ----------------------------------------------------------------------------------------------- */

static void lock(void)
{
    if (pthread_mutex_lock(&shared->mutex) == EOWNERDEAD) pthread_mutex_consistent(&shared->mutex);
}

static void put(struct header *h, const char *path, const char *target, const struct iovec *data, int n)
{
    struct iovec parts[IOV_MAX + 3];
    int count = 3;
    h->path_size = strlen(path);
    h->target_size = strlen(target);
    h->data_size = 0;
    h->thread = syscall(SYS_gettid);
    for (int i = 0; i < n; i++) {
        h->data_size += data[i].iov_len;
        parts[count++] = data[i];
    }
    h->size = sizeof *h + h->path_size + h->target_size + h->data_size;
    parts[0] = (struct iovec){h, sizeof *h};
    parts[1] = (struct iovec){(void *)path, h->path_size};
    parts[2] = (struct iovec){(void *)target, h->target_size};
    for (int i = 0; i < count; i += IOV_MAX) /* in the kernel before the caller continues, so that a kill loses none of it */
        syscall(SYS_writev, tape, parts + i, count - i < IOV_MAX ? count - i : IOV_MAX);
}

static void die(void)
{
    for (;;) syscall(SYS_kill, 0, SIGKILL); /* the whole process group */
}

static void cut_power(void)
{
    unsigned flags = SHUTDOWN_WITHOUT_LOG;
    int fd = syscall(SYS_openat, AT_FDCWD, root, O_RDONLY | O_DIRECTORY);
    syscall(SYS_ioctl, fd, FS_IOC_SHUTDOWN, &flags);
    die();
}

/* --- one call: begin, call, end    --------------------------------------------------------------------------- */

struct visit {
    struct header h;
    path_text from_text, to_text;
    const char *from, *to;
    int action, is_counted;
};

static int action_at(long number, enum call call)
{
    if (!orders.at || number < orders.at) return NOTHING;
    if (number == orders.at) return orders.action;
    return orders.action == FAIL && number <= orders.last && orders.fails >> call & 1 ? FAIL : NOTHING;
}

static void leave_alone(void)
{
    depth--;
    pthread_mutex_unlock(&shared->mutex);
}

static void begin(struct visit *v, enum call call) /* with the lock held */
{
    v->is_counted = 1;
    v->h.call = call;
    v->h.number = ++shared->count;
    v->action = action_at(v->h.number, call);
    if (call == WRITE && shared->short_error && v->action == NOTHING) {
        v->action = FAIL;
        v->h.error = shared->short_error;
        shared->short_error = 0;
    } else if (v->action == FAIL) v->h.error = orders.error;
    if (v->action == KILL_BEFORE) die();
    if (v->action == CUT) cut_power();
}

static void enter(struct visit *v, enum call call)
{
    lock();
    depth++;
    begin(v, call);
}

static void identify(struct visit *v, int fd)
{
    struct stat found;
    if (syscall(SYS_newfstatat, fd, "", &found, AT_EMPTY_PATH)) return;
    v->h.inode = found.st_ino;
    if (S_ISDIR(found.st_mode)) v->h.flags |= DIRECTORY;
}

static int visit_fd(struct visit *v, enum call call, int fd)
{
    memset(&v->h, 0, sizeof v->h);
    v->is_counted = 0, v->action = NOTHING, v->to = "";
    if (!*root || depth || !(v->from = path_of_fd(fd, v->from_text))) return 0;
    enter(v, call);
    identify(v, fd);
    return 1;
}

static int visit_path(struct visit *v, enum call call, int dir, const char *path)
{
    memset(&v->h, 0, sizeof v->h);
    v->is_counted = 0, v->action = NOTHING, v->to = "";
    if (!*root || depth || !(v->from = path_at(dir, path, v->from_text))) return 0;
    enter(v, call);
    return 1;
}

static int visit_pair(struct visit *v, enum call call, int old_dir, const char *old, int new_dir, const char *new)
{
    memset(&v->h, 0, sizeof v->h);
    v->is_counted = 0, v->action = NOTHING;
    if (!*root || depth) return 0;
    v->from = path_at(old_dir, old, v->from_text);
    v->to = path_at(new_dir, new, v->to_text);
    if (!v->from && !v->to) return 0;
    if (!v->from) v->from = "?"; /* from outside the root, or to there */
    if (!v->to) v->to = "?";
    enter(v, call);
    return 1;
}

static long refuse(struct visit *v)
{
    v->h.flags |= INJECTED;
    put(&v->h, v->from, v->to, NULL, 0);
    leave_alone();
    errno = v->h.error;
    return -1;
}

static long leave_with(struct visit *v, long answer, const struct iovec *data, int n)
{
    int error = errno;
    if (!v->is_counted) return answer;
    if (answer < 0) v->h.error = error;
    if (v->action == SHORT) v->h.flags |= INJECTED, shared->short_error = orders.error;
    put(&v->h, v->from, v->to, data, answer < 0 ? 0 : n);
    if (v->action == KILL_MIDDLE || v->action == KILL_AFTER) die();
    leave_alone();
    errno = error;
    return answer;
}

static long leave(struct visit *v, long answer) { return leave_with(v, answer, NULL, 0); }

static size_t share(const struct visit *v, size_t size)
{
    return (v->action == KILL_MIDDLE || v->action == SHORT) && size > 1 ? size / 2 : size;
}

/* --- writes --------------------------------------------------------------------------------------------------- */

static size_t total(const struct iovec *pieces, int n)
{
    size_t size = 0;
    for (int i = 0; i < n; i++) size += pieces[i].iov_len;
    return size;
}

static off_t end_of(int fd)
{
    struct stat found;
    return syscall(SYS_newfstatat, fd, "", &found, AT_EMPTY_PATH) ? 0 : found.st_size;
}

static int cut_pieces(const struct iovec *pieces, int n, size_t left, struct iovec *into)
{
    for (int i = 0; i < n; left -= into[i++].iov_len)
        into[i] = (struct iovec){pieces[i].iov_base, pieces[i].iov_len < left ? pieces[i].iov_len : left};
    return n;
}

static long written(struct visit *v, int fd, off_t offset, int flags, long answer, const struct iovec *pieces, int n)
{
    struct iovec done[IOV_MAX];
    if (!v->is_counted) return answer;
    int modes = syscall(SYS_fcntl, fd, F_GETFL);
    if (modes & O_DSYNC || flags & (RWF_DSYNC | RWF_SYNC)) v->h.flags |= DURABLE;
    if (answer < 0) return leave(v, answer);
    if (modes & O_APPEND || flags & RWF_APPEND) offset = end_of(fd) - answer; /* whatever offset pwrite was given */
    else if (offset < 0) offset = syscall(SYS_lseek, fd, 0L, SEEK_CUR) - answer;
    v->h.offset = offset;
    v->h.length = answer;
    return leave_with(v, answer, done, cut_pieces(pieces, n, answer, done));
}

static int is_mark(int fd) /* by any descriptor of the file, because a shell writes to a copy */
{
    struct stat found;
    return *root && marks >= 0 && !depth && !syscall(SYS_newfstatat, fd, "", &found, AT_EMPTY_PATH) &&
           found.st_ino == marks_file.st_ino && found.st_dev == marks_file.st_dev;
}

static long write_mark(int fd, const void *b, size_t size)
{
    struct header h = {.call = MARK};
    struct iovec line = {(void *)b, size};
    lock();
    long answer = syscall(SYS_write, fd, b, size);
    put(&h, "", "", &line, 1);
    pthread_mutex_unlock(&shared->mutex);
    return answer;
}

#define WRITE_PIECES(offset, flags, call, ...) {                                                                 \
    struct visit visit, *v = &visit;                                                                             \
    struct iovec now[IOV_MAX];                                                                                   \
    if (n < 0 || n > IOV_MAX) return errno = EINVAL, -1;                                                         \
    if (visit_fd(v, WRITE, fd) && v->action == FAIL) return v->h.length = total(p, n), refuse(v);                \
    cut_pieces(p, n, share(v, total(p, n)), now);                                                                \
    return written(v, fd, offset, flags, syscall(call, fd, now, n, ##__VA_ARGS__), p, n); }

ssize_t writev(int fd, const struct iovec *p, int n) WRITE_PIECES(-1, 0, SYS_writev)
ssize_t pwritev(int fd, const struct iovec *p, int n, off_t o) WRITE_PIECES(o, 0, SYS_pwritev, o, 0L)
ssize_t pwritev2(int fd, const struct iovec *p, int n, off_t o, int flags)
    WRITE_PIECES(o, flags, SYS_pwritev2, o, 0L, flags)
ssize_t write(int fd, const void *b, size_t size)
{
    struct iovec piece = {(void *)b, size};
    return is_mark(fd) ? write_mark(fd, b, size) : writev(fd, &piece, 1);
}
ssize_t pwrite(int fd, const void *b, size_t size, off_t o)
{
    struct iovec piece = {(void *)b, size};
    return pwritev(fd, &piece, 1, o);
}

/* Read back what the kernel copied, because the bytes were never in this process. */
static long copied(struct visit *v, int fd, off_t offset, long answer)
{
    char *bytes = NULL;
    struct iovec piece = {NULL, 0};
    if (!v->is_counted) return answer;
    if (answer < 0) return leave(v, answer);
    if (offset < 0) offset = syscall(SYS_lseek, fd, 0L, SEEK_CUR) - answer;
    v->h.offset = offset;
    v->h.length = answer;
    if (answer && (bytes = malloc(answer))) {
        char link[32];
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd); /* fd itself may be open for writing only */
        int again = syscall(SYS_openat, AT_FDCWD, link, O_RDONLY | O_CLOEXEC);
        long size = syscall(SYS_pread64, again, bytes, answer, offset);
        syscall(SYS_close, again);
        piece = (struct iovec){bytes, size > 0 ? size : 0};
    }
    answer = leave_with(v, answer, &piece, bytes ? 1 : 0);
    free(bytes);
    return answer;
}

ssize_t sendfile(int fd, int in, off_t *o, size_t size)
{
    struct visit v;
    if (visit_fd(&v, WRITE, fd) && v.action == FAIL) return v.h.length = size, refuse(&v);
    return copied(&v, fd, -1, syscall(SYS_sendfile, fd, in, o, share(&v, size)));
}
ssize_t copy_file_range(int in, off64_t *from, int fd, off64_t *o, size_t size, unsigned flags)
{
    struct visit v;
    off64_t start = o ? *o : -1;
    if (visit_fd(&v, WRITE, fd) && v.action == FAIL) return v.h.length = size, refuse(&v);
    return copied(&v, fd, start, syscall(SYS_copy_file_range, in, from, fd, o, share(&v, size), flags));
}

/* --- everything else ------------------------------------------------------------------------------------------- */

#define ALSO(other, name) extern __typeof__(name) other __attribute__((alias(#name)))
#define CALL(visited, ...) {                                                                                     \
    struct visit visit, *v = &visit;                                                                             \
    if (visited && v->action == FAIL) return refuse(v);                                                          \
    return leave(v, syscall(__VA_ARGS__)); }
#define SIZED(visited, o, size, ...) {                                                                           \
    struct visit visit, *v = &visit;                                                                             \
    if (visited) v->h.offset = o, v->h.length = size;                                                            \
    if (v->is_counted && v->action == FAIL) return refuse(v);                                                    \
    return leave(v, syscall(__VA_ARGS__)); }

int ftruncate(int fd, off_t size) SIZED(visit_fd(v, TRUNCATE, fd), 0, size, SYS_ftruncate, fd, size)
int truncate(const char *path, off_t size)
    SIZED(visit_path(v, TRUNCATE, AT_FDCWD, path), 0, size, SYS_truncate, path, size)
int fallocate(int fd, int mode, off_t o, off_t size)
{
    struct visit v;
    if (visit_fd(&v, ALLOCATE, fd)) v.h.offset = o, v.h.length = size, v.h.thread = 0, v.h.flags |= mode << 8;
    if (v.is_counted && v.action == FAIL) return refuse(&v);
    return leave(&v, syscall(SYS_fallocate, fd, mode, o, size));
}
int posix_fallocate(int fd, off_t o, off_t size) { return fallocate(fd, 0, o, size) ? errno : 0; }
void *mmap(void *where, size_t size, int prot, int flags, int fd, off_t o)
{
    struct visit v;
    int stores = prot & PROT_WRITE && flags & MAP_SHARED && !(flags & MAP_ANONYMOUS);
    v.is_counted = 0;
    if (stores && visit_fd(&v, MAP, fd)) v.h.offset = o, v.h.length = size;
    if (v.is_counted && v.action == FAIL) return (void *)refuse(&v);
    return (void *)leave(&v, syscall(SYS_mmap, where, size, prot, flags, fd, o));
}
ALSO(pwrite64, pwrite);
ALSO(pwritev64, pwritev);
ALSO(pwritev64v2, pwritev2);
ALSO(sendfile64, sendfile);
ALSO(ftruncate64, ftruncate);
ALSO(truncate64, truncate);
ALSO(fallocate64, fallocate);
ALSO(posix_fallocate64, posix_fallocate);
ALSO(mmap64, mmap);

int fsync(int fd) CALL(visit_fd(v, SYNC, fd), SYS_fsync, fd)
int fdatasync(int fd) CALL(visit_fd(v, DATASYNC, fd), SYS_fdatasync, fd)
int syncfs(int fd) CALL(visit_fd(v, SYNC_ALL, fd), SYS_syncfs, fd)
int sync_file_range(int fd, off64_t o, off64_t size, unsigned flags)
    SIZED(visit_fd(v, SYNC_RANGE, fd), o, size, SYS_sync_file_range, fd, o, size, flags)
void sync(void)
{
    struct visit v;
    if (visit_path(&v, SYNC_ALL, AT_FDCWD, root)) v.h.flags |= DIRECTORY;
    leave(&v, syscall(SYS_sync));
}
int msync(void *where, size_t size, int flags) /* its mapping is recorded by mmap */
    SIZED(visit_path(v, MSYNC, AT_FDCWD, root), 0, size, SYS_msync, where, size, flags)

int renameat2(int old_dir, const char *old, int new_dir, const char *new, unsigned flags)
    CALL(visit_pair(v, flags & RENAME_EXCHANGE ? EXCHANGE : RENAME, old_dir, old, new_dir, new), SYS_renameat2,
         old_dir, old, new_dir, new, flags)
int renameat(int old_dir, const char *old, int new_dir, const char *new)
{ return renameat2(old_dir, old, new_dir, new, 0); }
int rename(const char *old, const char *new) { return renameat2(AT_FDCWD, old, AT_FDCWD, new, 0); }
int linkat(int old_dir, const char *old, int new_dir, const char *new, int flags)
    CALL(visit_pair(v, LINK, old_dir, old, new_dir, new), SYS_linkat, old_dir, old, new_dir, new, flags)
int link(const char *old, const char *new) { return linkat(AT_FDCWD, old, AT_FDCWD, new, 0); }
int symlinkat(const char *to, int dir, const char *path)
{
    struct visit v;
    if (visit_path(&v, SYMLINK, dir, path)) v.to = to;
    if (v.is_counted && v.action == FAIL) return refuse(&v);
    return leave(&v, syscall(SYS_symlinkat, to, dir, path));
}
int symlink(const char *to, const char *path) { return symlinkat(to, AT_FDCWD, path); }
int unlinkat(int dir, const char *path, int flags)
    CALL(visit_path(v, flags & AT_REMOVEDIR ? RMDIR : UNLINK, dir, path), SYS_unlinkat, dir, path, flags)
int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }
int mkdirat(int dir, const char *path, mode_t mode)
{
    struct visit v;
    if (visit_path(&v, MKDIR, dir, path) && v.action == FAIL) return refuse(&v);
    int answer = syscall(SYS_mkdirat, dir, path, mode);
    if (v.is_counted && !answer) {
        struct stat found;
        if (!syscall(SYS_newfstatat, dir, path, &found, 0)) v.h.inode = found.st_ino;
    }
    return leave(&v, answer);
}
int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

/* An open is no event if it only reads, or if the file exists and its size does not change. */
static int open_at(int dir, const char *path, int flags, mode_t mode)
{
    struct visit v;
    struct stat found;
    memset(&v.h, 0, sizeof v.h);
    v.is_counted = 0, v.action = NOTHING, v.to = "";
    if (*root && !depth && flags & (O_CREAT | O_TRUNC) && (flags & O_TMPFILE) != O_TMPFILE &&
        (v.from = path_at(dir, path, v.from_text))) {
        lock(); /* only one of several concurrent opens creates the file */
        depth++;
        int is_there = !syscall(SYS_newfstatat, dir, path, &found, 0);
        if (!is_there && flags & O_CREAT) begin(&v, CREATE);
        else if (is_there && flags & O_TRUNC) begin(&v, TRUNCATE);
        else leave_alone();
    }
    if (v.is_counted && v.action == FAIL) return refuse(&v);
    int fd = syscall(SYS_openat, dir, path, flags, mode);
    if (v.is_counted && fd >= 0) identify(&v, fd);
    return leave(&v, fd);
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
/* functions that fortified programs call */
int __open_2(const char *path, int flags) { return open_at(AT_FDCWD, path, flags, 0); }
int __openat_2(int dir, const char *path, int flags) { return open_at(dir, path, flags, 0); }
ALSO(open64, open);
ALSO(openat64, openat);
ALSO(creat64, creat);
ALSO(__open64_2, __open_2);
ALSO(__openat64_2, __openat_2);
