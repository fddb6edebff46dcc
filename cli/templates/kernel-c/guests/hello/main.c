/* Says hello, and sleeps for a moment. */
#include <bulkhead.h>

/* Returns the guest's exit code. */
uint32_t bulkhead_main(struct bulkhead_context context)
{
    const struct bulkhead_info *info = context.info;
    bulkhead_printf("hello from %s: %lu MiB, %u core(s)\n", info->name, info->memory >> 20, info->cores);
    bulkhead_sleep(10000000); /* ns */
    return 0;
}
