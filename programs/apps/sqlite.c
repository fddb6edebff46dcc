/* SQLite in a program of the kernel: a database in memory.
 *
 * SQLite is compiled with SQLITE_OS_OTHER, and gets its randomness and time here; there are no files. The host runs
 * this, too, and says the same.
 * SPDX-License-Identifier: Apache-2.0 OR MIT */
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static int no_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *out)
{
    (void)vfs, (void)name, (void)flags, (void)out;
    file->pMethods = NULL;
    return SQLITE_CANTOPEN;
}

static int no_delete(sqlite3_vfs *vfs, const char *name, int sync)
{
    (void)vfs, (void)name, (void)sync;
    return SQLITE_IOERR_DELETE_NOENT;
}

static int no_access(sqlite3_vfs *vfs, const char *name, int flags, int *out)
{
    (void)vfs, (void)name, (void)flags;
    *out = 0;
    return SQLITE_OK;
}

static int full_name(sqlite3_vfs *vfs, const char *name, int length, char *out)
{
    (void)vfs;
    snprintf(out, (size_t)length, "%s", name);
    return SQLITE_OK;
}

/* No key is made of it here. */
static int randomness(sqlite3_vfs *vfs, int length, char *out)
{
    (void)vfs;
    memset(out, 4, (size_t)length);
    return length;
}

static int pause(sqlite3_vfs *vfs, int micros)
{
    (void)vfs;
    nanosleep(&(struct timespec){.tv_sec = micros / 1000000, .tv_nsec = micros % 1000000 * 1000}, NULL);
    return micros;
}

static int now(sqlite3_vfs *vfs, sqlite3_int64 *out)
{
    struct timespec time;
    (void)vfs;
    clock_gettime(CLOCK_REALTIME, &time);
    /* Milliseconds since the Julian epoch. */
    *out = 210866760000000ll + time.tv_sec * 1000ll + time.tv_nsec / 1000000;
    return SQLITE_OK;
}

static int last_error(sqlite3_vfs *vfs, int length, char *out)
{
    (void)vfs, (void)length, (void)out;
    return 0;
}

int sqlite3_os_init(void)
{
    static sqlite3_vfs none = {
        .iVersion = 2,
        .szOsFile = sizeof(sqlite3_file),
        .mxPathname = 64,
        .zName = "none",
        .xOpen = no_open,
        .xDelete = no_delete,
        .xAccess = no_access,
        .xFullPathname = full_name,
        .xRandomness = randomness,
        .xSleep = pause,
        .xGetLastError = last_error,
        .xCurrentTimeInt64 = now,
    };
    return sqlite3_vfs_register(&none, 1);
}

int sqlite3_os_end(void)
{
    return SQLITE_OK;
}

static int row(void *unused, int count, char **values, char **names)
{
    (void)unused, (void)names;
    for (int n = 0; n < count; n++)
        printf("%s%s", n ? "|" : "", values[n] ? values[n] : "NULL");
    printf("\n");
    return 0;
}

static const char *const STATEMENTS[] = {
    "CREATE TABLE reading (id INTEGER PRIMARY KEY, sensor TEXT NOT NULL, at INTEGER, value REAL CHECK (value < 1e6))",
    "CREATE INDEX of_sensor ON reading (sensor, at)",
    "BEGIN",
    "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 4999) "
    "INSERT INTO reading SELECT i, 'sensor-' || (i % 7), i * 10, (i * 7919 % 1000) / 8.0 FROM n",
    "COMMIT",
    "SELECT sensor, count(*), avg(value), min(at), max(at) FROM reading GROUP BY sensor ORDER BY sensor",
    "SELECT id, value, sum(value) OVER (ORDER BY id ROWS 2 PRECEDING) FROM reading WHERE id < 6",
    "EXPLAIN QUERY PLAN SELECT value FROM reading WHERE sensor = 'sensor-3' AND at > 100",
    "BEGIN",
    "DELETE FROM reading WHERE id % 2",
    "SELECT count(*) FROM reading",
    "ROLLBACK",
    "SELECT count(*), total(value) FROM reading",
    "SELECT a.id, b.id FROM reading a JOIN reading b ON b.at = a.at + 20 WHERE a.id BETWEEN 10 AND 12",
    "SELECT json_group_array(json_object('id', id, 'v', value)) FROM reading WHERE id < 3",
    "SELECT printf('%.10g %s', 355.0 / 113, hex('abc')), date(86400, 'unixepoch'), length(zeroblob(1000))",
    "SELECT upper(sensor), group_concat(id) FROM (SELECT * FROM reading ORDER BY value DESC, id LIMIT 5) GROUP BY 1",
    "INSERT INTO reading VALUES (0, 'sensor-0', 0, 0)",
    "INSERT INTO reading VALUES (-1, 'sensor-0', 0, 1e7)",
    "PRAGMA integrity_check",
    "ATTACH '/no/such/file' AS other",
};

int main(void)
{
    sqlite3 *base;
    if (sqlite3_open(":memory:", &base)) {
        printf("sqlite: %s\n", sqlite3_errmsg(base));
        return 1;
    }
    for (size_t n = 0; n < sizeof STATEMENTS / sizeof *STATEMENTS; n++) {
        char *error = NULL;
        if (sqlite3_exec(base, STATEMENTS[n], row, NULL, &error))
            printf("refused: %s\n", error);
        sqlite3_free(error);
    }
    int status = sqlite3_close(base);
    printf("SQLite %s ended: %d, %lld bytes in use\n", sqlite3_libversion(), status, (long long)sqlite3_memory_used());
    return status;
}
