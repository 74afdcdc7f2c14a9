/* A log of cups in C. `cups work ROOT` adds some and writes marks, `cups show ROOT` prints the entries as JSON.
 *
 *     ┼ size u32 ┼ sum u32 ┼ name ┤     one after the other in ROOT/log
 *
 * Built with -DFORGETFUL it syncs nothing, which the laboratory must find. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct head { uint32_t size, sum; };

static uint32_t sum_of(const char *bytes, size_t size)
{
    uint32_t sum = 2166136261u;
    for (size_t i = 0; i < size; i++) sum = (sum ^ (uint8_t)bytes[i]) * 16777619u;
    return sum;
}

/* One line for each mark, by write(), because the recorder does not see what stdio writes. */
static void mark(const char *word, int token, const char *rest)
{
    char line[200];
    int size = snprintf(line, sizeof line, "[\"%s\",%d%s]\n", word, token, rest);
    if (getenv("CRASHLAB_MARKS") && write(atoi(getenv("CRASHLAB_MARKS")), line, size) != size) exit(3);
}

static void make_durable(int fd)
{
#ifndef FORGETFUL
    if (fsync(fd)) exit(3);
#else
    (void)fd;
#endif
}

static int opened(const char *root, int flags)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/log", root);
    int fd = open(path, flags, 0666);
    if (fd >= 0 && flags & O_CREAT) {
        int directory = open(root, O_RDONLY | O_DIRECTORY);
        make_durable(directory);
        close(directory);
    }
    return fd;
}

static void add(int fd, int number)
{
    char record[sizeof(struct head) + 64], *name = record + sizeof(struct head), asked[100];
    struct head head = {.size = snprintf(name, 64, "cup %d", number)};
    head.sum = sum_of(name, head.size);
    memcpy(record, &head, sizeof head);
    snprintf(asked, sizeof asked, ",\"add\",\"%s\",%d", name, number);
    mark("invoke", number, asked);
    ssize_t whole = sizeof head + head.size;
    if (write(fd, record, whole) != whole) exit(3); /* after an error nothing more is acknowledged */
    make_durable(fd);
    mark("ack", number, "");
}

static void show(int fd)
{
    struct head head;
    char name[64];
    printf("[");
    for (int number = 0; fd >= 0 && read(fd, &head, sizeof head) == sizeof head; number++) {
        if (head.size >= sizeof name || read(fd, name, head.size) != head.size) break; /* torn: the end */
        if (sum_of(name, head.size) != head.sum) break;
        printf("%s[\"%.*s\", %d]", number ? ", " : "", (int)head.size, name, number);
    }
    printf("]\n");
}

int main(int count, char **words)
{
    if (count != 3) return 2;
    if (!strcmp(words[1], "show")) return show(opened(words[2], O_RDONLY)), 0;
    int fd = opened(words[2], O_WRONLY | O_CREAT | O_APPEND);
    if (fd < 0) return 3;
    for (int number = 0; number < 5; number++) add(fd, number);
    return 0;
}
