/* The raw limit: writes the bytes that our journal would write, with pwrite and fdatasync, and does nothing else.
 *
 * The file is filled with zeros and synced when it is opened, like a journal before it is used. At its end it is
 * overwritten from its start. A single writer writes a complete group each time. With several threads, each has a
 * record of its own. The first thread that enters a group leads it: when the previous group is durable, it writes
 * all records of its group with one pwrite and one fdatasync, and releases the other threads, either with a mutex
 * and a condition variable, the usual way, or with a futex, the fastest way of the machine.
 *
 * Called by raw.py. Functions that return a number return -errno on failure.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#endif
#ifdef __APPLE__
#define fdatasync(descriptor) fcntl(descriptor, F_FULLFSYNC)
#endif

/* The build defines ALIGNMENT, and SEAL, the minimum number of bytes after the records of a group. */
enum { FILL_STEP = 1 << 20 };

struct raw_file { int descriptor; uint64_t size, end; };

struct raw_work { /* as in raw.py */
    uint64_t threads, futex;
    uint64_t limit_ns, calls;          /* maximum number of calls of each thread */
    const char *bytes;                 /* a complete group for one thread, otherwise one record */
    uint64_t size;
    uint64_t *latencies;               /* room for threads * calls */
    uint64_t made, elapsed_ns;         /* results; the latencies are consecutive */
};

static uint64_t now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (uint64_t)at.tv_sec * 1000000000u + (uint64_t)at.tv_nsec;
}

static int write_whole(int descriptor, const char *bytes, uint64_t size, uint64_t offset)
{
    while (size) {
        ssize_t done = pwrite(descriptor, bytes, size, (off_t)offset);
        if (done < 0) return -errno;
        bytes += done, offset += (uint64_t)done, size -= (uint64_t)done;
    }
    return 0;
}

int raw_open(struct raw_file *file, const char *path, uint64_t size)
{
    char *zeros = calloc(1, FILL_STEP);
    int error = zeros ? 0 : -ENOMEM;
    file->descriptor = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    file->size = size, file->end = 0;
    if (file->descriptor < 0) error = -errno;
    for (uint64_t at = 0; at < size && !error; at += FILL_STEP)
        error = write_whole(file->descriptor, zeros, FILL_STEP, at);
    if (!error && fsync(file->descriptor)) error = -errno;
    free(zeros);
    return error;
}

int raw_close(struct raw_file *file) { return close(file->descriptor) ? -errno : 0; }

static int append(struct raw_file *file, const char *bytes, uint64_t size)
{
    if (file->end + size > file->size) file->end = 0;
    int error = write_whole(file->descriptor, bytes, size, file->end);
    if (!error && fdatasync(file->descriptor)) error = -errno;
    file->end += size;
    return error;
}

int raw_alone(struct raw_file *file, struct raw_work *work)
{
    uint64_t start = now(), before = start, after = start;
    int error = 0;
    for (work->made = 0; work->made < work->calls && after - start < work->limit_ns && !error; before = after) {
        error = append(file, work->bytes, work->size);
        after = now();
        work->latencies[work->made++] = after - before;
    }
    work->elapsed_ns = after - start;
    return error;
}

/* --- threads -------------------------------------------------------------------------------------------------- */

struct group {
    char *records;
    uint32_t count, left, is_durable; /* threads wait for is_durable */
    struct group *next; /* next unused group */
};

struct crew {
    struct raw_file *file;
    struct raw_work *work;
    pthread_mutex_t entering, writing, sleeping;
    pthread_cond_t woken;
    struct group *groups, *open, *unused;
    uint64_t start;
    int error;
};

struct member { struct crew *crew; uint64_t *latencies, made, end; };

static void sleep_until(struct crew *crew, uint32_t *word)
{
#ifdef __linux__
    while (crew->work->futex && !__atomic_load_n(word, __ATOMIC_ACQUIRE))
        syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
#endif
    if (__atomic_load_n(word, __ATOMIC_ACQUIRE)) return;
    pthread_mutex_lock(&crew->sleeping);
    while (!__atomic_load_n(word, __ATOMIC_ACQUIRE)) pthread_cond_wait(&crew->woken, &crew->sleeping);
    pthread_mutex_unlock(&crew->sleeping);
}

static void wake_all(struct crew *crew, uint32_t *word)
{
#ifdef __linux__
    if (crew->work->futex) {
        __atomic_store_n(word, 1, __ATOMIC_RELEASE);
        syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
        return;
    }
#endif
    pthread_mutex_lock(&crew->sleeping);
    __atomic_store_n(word, 1, __ATOMIC_RELEASE);
    pthread_cond_broadcast(&crew->woken);
    pthread_mutex_unlock(&crew->sleeping);
}

static void take_unused(struct crew *crew)
{
    crew->open = crew->unused;
    crew->unused = crew->open->next;
    crew->open->count = crew->open->is_durable = 0;
}

static void lead(struct crew *crew, struct group *group)
{
    pthread_mutex_lock(&crew->writing);
    pthread_mutex_lock(&crew->entering);
    take_unused(crew); /* threads that enter from now on join the next group */
    pthread_mutex_unlock(&crew->entering);
    uint64_t size = group->count * crew->work->size + SEAL;
    size += (ALIGNMENT - size % ALIGNMENT) % ALIGNMENT;
    int error = append(crew->file, group->records, size);
    if (error) crew->error = error;
    pthread_mutex_unlock(&crew->writing);
    group->left = group->count;
    wake_all(crew, &group->is_durable);
}

static void leave(struct crew *crew, struct group *group)
{
    if (__atomic_sub_fetch(&group->left, 1, __ATOMIC_ACQ_REL)) return;
    pthread_mutex_lock(&crew->entering);
    group->next = crew->unused, crew->unused = group;
    pthread_mutex_unlock(&crew->entering);
}

static void add(struct crew *crew)
{
    pthread_mutex_lock(&crew->entering);
    struct group *group = crew->open;
    uint32_t place = group->count++;
    memcpy(group->records + place * crew->work->size, crew->work->bytes, crew->work->size);
    pthread_mutex_unlock(&crew->entering);
    if (place) sleep_until(crew, &group->is_durable);
    else lead(crew, group);
    leave(crew, group);
}

static void *take_part(void *given)
{
    struct member *self = given;
    struct crew *crew = self->crew;
    pthread_mutex_lock(&crew->entering); /* held until all threads have started */
    pthread_mutex_unlock(&crew->entering);
    uint64_t before = now();
    while (self->made < crew->work->calls && before - crew->start < crew->work->limit_ns && !crew->error) {
        add(crew);
        uint64_t after = now();
        self->latencies[self->made++] = after - before;
        before = after;
    }
    self->end = before;
    return NULL;
}

static void gather(struct raw_work *work, const struct member *members, uint64_t count, uint64_t start)
{
    for (uint64_t i = 0; i < count; i++) {
        memmove(work->latencies + work->made, members[i].latencies, members[i].made * sizeof *work->latencies);
        work->made += members[i].made;
        if (members[i].end - start > work->elapsed_ns) work->elapsed_ns = members[i].end - start;
    }
}

static void *zeros(uint64_t size)
{
    void *made = calloc(1, size);
    if (!made) abort();
    return made;
}

static void make_groups(struct crew *crew)
{
    /* One group is open, and each thread may still be leaving another one. */
    uint64_t count = crew->work->threads + 2, size = crew->work->threads * crew->work->size + SEAL + ALIGNMENT;
    crew->groups = zeros(count * sizeof *crew->groups);
    for (uint64_t i = 0; i < count; i++) {
        crew->groups[i] = (struct group){.records = zeros(size), .next = crew->unused};
        crew->unused = &crew->groups[i];
    }
    take_unused(crew);
}

static void free_groups(struct crew *crew)
{
    for (uint64_t i = 0; i < crew->work->threads + 2; i++) free(crew->groups[i].records);
    free(crew->groups);
}

int raw_together(struct raw_file *file, struct raw_work *work)
{
    struct crew crew = {.file = file, .work = work};
    struct member *members = zeros(work->threads * sizeof *members);
    pthread_t *threads = zeros(work->threads * sizeof *threads);
    uint64_t begun = 0;
    make_groups(&crew);
    pthread_mutex_init(&crew.entering, NULL);
    pthread_mutex_init(&crew.writing, NULL);
    pthread_mutex_init(&crew.sleeping, NULL);
    pthread_cond_init(&crew.woken, NULL);
    pthread_mutex_lock(&crew.entering);
    while (begun < work->threads && !crew.error) {
        members[begun] = (struct member){.crew = &crew, .latencies = work->latencies + begun * work->calls};
        crew.error = -pthread_create(&threads[begun], NULL, take_part, &members[begun]);
        begun += !crew.error;
    }
    crew.start = now();
    pthread_mutex_unlock(&crew.entering);
    for (uint64_t i = 0; i < begun; i++) pthread_join(threads[i], NULL);
    work->made = work->elapsed_ns = 0;
    gather(work, members, begun, crew.start);
    free(members), free(threads), free_groups(&crew);
    return crew.error;
}

/* --- reading -------------------------------------------------------------------------------------------------- */

#if defined(__SSE4_2__)
#include <nmmintrin.h>
#define SUM(sum, word) _mm_crc32_u64(sum, word)
#define SUM_HALF(sum, half) _mm_crc32_u32((uint32_t)(sum), half)
#define SUM_BYTE(sum, byte) _mm_crc32_u8((uint32_t)(sum), byte)
#elif defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#define SUM(sum, word) __crc32cd((uint32_t)(sum), word)
#define SUM_HALF(sum, half) __crc32cw((uint32_t)(sum), half)
#define SUM_BYTE(sum, byte) __crc32cb((uint32_t)(sum), byte)
#endif

#ifdef SUM
enum { LANES = 3, WORD = sizeof(uint64_t) };

static uint64_t word_at(const char *bytes)
{
    uint64_t word;
    memcpy(&word, bytes, WORD);
    return word;
}

static uint64_t sum_of(const char *bytes, uint64_t size, uint64_t sum)
{
    uint64_t at = 0;
    for (; at + WORD <= size; at += WORD) sum = SUM(sum, word_at(bytes + at));
    for (; at < size; at++) sum = SUM_BYTE(sum, (uint8_t)bytes[at]);
    return sum;
}

/* Sums three thirds at once, because the instructions of a single sum wait for each other most of the time. */
static uint64_t sums_of(const char *bytes, uint64_t size, uint64_t sum)
{
    uint64_t third = size / LANES / WORD * WORD, second = sum, last = sum;
    for (uint64_t at = 0; at < third; at += WORD) {
        sum = SUM(sum, word_at(bytes + at));
        second = SUM(second, word_at(bytes + third + at));
        last = SUM(last, word_at(bytes + 2 * third + at));
    }
    return sum_of(bytes + LANES * third, size - LANES * third, sum ^ second ^ last);
}

/* --- records -------------------------------------------------------------------------------------------------- */

enum { HEADER = 1024, HEAD = 32, DIGEST = 4, HALF_WORD = 4 };

static uint32_t number_at(const char *bytes)
{
    uint32_t number;
    memcpy(&number, bytes, sizeof number);
    return __builtin_bswap32(number);
}

/* Applies the CRC instruction to words, then to a half word, then to the remaining bytes. */
static uint64_t sum_of_record(const char *bytes, uint64_t size, uint64_t sum)
{
    uint64_t at = 0;
    for (; at + WORD <= size; at += WORD) sum = SUM(sum, word_at(bytes + at));
    if (at + HALF_WORD <= size) {
        uint32_t half;
        memcpy(&half, bytes + at, HALF_WORD);
        sum = SUM_HALF(sum, half), at += HALF_WORD;
    }
    for (; at < size; at++) sum = SUM_BYTE(sum, (uint8_t)bytes[at]);
    return sum;
}

static uint64_t is_wrong(const char *entry, uint64_t size)
{
    uint64_t sum = sum_of_record(entry, HEAD, UINT32_MAX);
    sum = sum_of_record(entry + HEAD + DIGEST, size - HEAD - DIGEST, sum);
    return (uint32_t)~sum != number_at(entry + HEAD);
}

/* Reads an entry log in blocks, and compares the CRC-32C of each entry with its digest. All records of the log
 * must be complete, and smaller than a block. */
int raw_records(const char *path, uint64_t block, uint64_t *elapsed_ns, uint64_t *count, uint64_t *wrong)
{
    char *bytes = malloc(block);
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t done = bytes && descriptor >= 0 ? 1 : -1;
    uint64_t start = now(), from = HEADER;
    for (*count = *wrong = 0; done > 0;) {
        done = pread(descriptor, bytes, block, (off_t)from);
        uint64_t at = 0, held = done > 0 ? (uint64_t)done : 0;
        while (held - at >= sizeof(uint32_t)) {
            uint64_t size = number_at(bytes + at), next = at + sizeof(uint32_t) + size;
            if (size < HEAD + DIGEST || next > held) break;
            *wrong += is_wrong(bytes + at + sizeof(uint32_t), size);
            ++*count, at = next;
        }
        if (!at) break;
        from += at; /* read an incomplete record again, because moving it costs as much */
    }
    int error = done < 0 ? -errno : 0;
    *elapsed_ns = now() - start;
    if (descriptor >= 0) close(descriptor);
    free(bytes);
    return error;
}

/* Reads the file in blocks and sums each block. With one lane the sum is the CRC-32C of the file. */
int raw_scan(const char *path, uint64_t block, uint64_t lanes, uint64_t *elapsed_ns, uint64_t *sum)
{
    char *bytes = malloc(block);
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t done = bytes && descriptor >= 0 ? 1 : -1;
    uint64_t start = now(), found = UINT32_MAX;
    for (uint64_t at = 0; done > 0; at += (uint64_t)done) {
        done = pread(descriptor, bytes, block, (off_t)at);
        if (done > 0) found = (lanes == 1 ? sum_of : sums_of)(bytes, (uint64_t)done, found);
    }
    int error = done < 0 ? -errno : 0;
    *elapsed_ns = now() - start, *sum = found ^ UINT32_MAX;
    if (descriptor >= 0) close(descriptor);
    free(bytes);
    return error;
}
#endif
