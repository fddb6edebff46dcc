/* PCI in C: finds its functions, reads what they are by both ways, lets QEMU's edu
 * device copy memory and tell so by MSI, lets a network card raise its MSI-X vectors, and
 * looks into registers above 4 GiB. Exit code 0 if all of it works, else the step that
 * did not. SPDX-License-Identifier: Apache-2.0 OR MIT */
#include <bulkhead.h>

enum { MSI_VECTOR = 0x60, MSIX_VECTOR = 0x61 };

static uint32_t messages[2];

__attribute__((target("general-regs-only"))) static void count(struct bulkhead_frame *frame, uint64_t now)
{
    (void)now;
    messages[frame->vector - MSI_VECTOR]++;
}

/* Sleeps until so many messages came, for five seconds at most. */
static bool came(unsigned which, uint32_t wanted)
{
    volatile uint32_t *now = &messages[which];
    uint64_t due = bulkhead_counter() + bulkhead_ticks(5000000000);
    while (*now < wanted && bulkhead_counter() < due)
        bulkhead_sleep(1000000);
    return *now >= wanted;
}

/* QEMU, docs/specs/edu.rst. */
enum { EDU_LIVENESS = 0x04, EDU_STATUS = 0x24, EDU_ACKNOWLEDGE = 0x64, EDU_SOURCE = 0x80,
       EDU_TARGET = 0x88, EDU_COUNT = 0x90, EDU_COMMAND = 0x98, EDU_BUFFER = 0x40000 };
enum { EDU_RUN = 1, EDU_TO_MEMORY = 2, EDU_INTERRUPT = 4, EDU_DONE = 0x100 };

static uint64_t from[64], to[64];

/* Copies `from` into the device and from there to `to`, each with a message. */
static uint32_t edu(void)
{
    bulkhead_function f = bulkhead_pci_find(0x1234, 0x11E8);
    uint64_t bar;
    if (f == BULKHEAD_NO_FUNCTION)
        return 1;
    if (bulkhead_pci_read_by_ports(f, BULKHEAD_PCI_ID) != bulkhead_pci_read(f, BULKHEAD_PCI_ID))
        return 2;
    bulkhead_pci_enable(f);
    bar = bulkhead_pci_bar(f, 0);
    if (!bar || bulkhead_pci_bar(f, 1) || bulkhead_pci_bar(f, 6))
        return 3;
    bulkhead_write32(bar + EDU_LIVENESS, 0x12345678);
    if (bulkhead_read32(bar + EDU_LIVENESS) != ~0x12345678u)
        return 4;
    if (!bulkhead_pci_msi(f, bulkhead_core_id(), MSI_VECTOR, count))
        return 5;
    for (unsigned n = 0; n < 64; n++)
        from[n] = n * 0x9E3779B97F4A7C15ul;
    for (uint32_t turn = 0; turn < 2; turn++) {
        bulkhead_write64(bar + EDU_SOURCE, turn ? EDU_BUFFER : (uint64_t)from);
        bulkhead_write64(bar + EDU_TARGET, turn ? (uint64_t)to : EDU_BUFFER);
        bulkhead_write64(bar + EDU_COUNT, sizeof from);
        bulkhead_write64(bar + EDU_COMMAND, EDU_RUN | EDU_INTERRUPT | (turn ? EDU_TO_MEMORY : 0));
        if (!came(0, turn + 1) || messages[0] != turn + 1)
            return 6;
        bulkhead_write32(bar + EDU_ACKNOWLEDGE, EDU_DONE);
    }
    for (unsigned n = 0; n < 64; n++)
        if (((volatile uint64_t *)to)[n] != from[n])
            return 7;
    return 0;
}

/* Intel 82574 datasheet, 10.2: interrupt causes that are pending, to set, to let through;
 * and which entry each raises. */
enum { CARD_ICR = 0xC0, CARD_ICS = 0xC8, CARD_IMS = 0xD0, CARD_IVAR = 0xE4 };
#define CARD_RXQ0 (1u << 20)

static uint32_t card(void)
{
    const unsigned entry = 3;
    bulkhead_function f = bulkhead_pci_find(0x8086, 0x10D3);
    if (f == BULKHEAD_NO_FUNCTION || bulkhead_pci_find_class(0x020000) != f)
        return 11;
    bulkhead_pci_enable(f);
    uint64_t bar = bulkhead_pci_bar(f, 0);
    if (!bar || bulkhead_pci_msix_vectors(f) != 5)
        return 12;
    if (!bulkhead_pci_msix(f, entry, bulkhead_core_id(), MSIX_VECTOR, count)
        || bulkhead_pci_msix(f, 5, bulkhead_core_id(), MSIX_VECTOR, count))
        return 13;
    /* The first receive queue raises that entry; nothing is received without a cause. */
    bulkhead_write32(bar + CARD_IVAR, entry | 8);
    bulkhead_write32(bar + CARD_IMS, CARD_RXQ0);
    for (unsigned turn = 0; turn < 3; turn++) {
        /* As long as a cause is pending, the card repeats itself. */
        uint32_t before = messages[1];
        bulkhead_write32(bar + CARD_ICS, CARD_RXQ0);
        if (!came(1, before + 1))
            return 14;
        bulkhead_write32(bar + CARD_ICR, CARD_RXQ0);
    }
    return 0;
}

/* NVM Express 1.4, 3.1.2: the version, 1.x. */
static uint32_t above(void)
{
    bulkhead_function f = bulkhead_pci_find_class(0x010802);
    uint64_t bar = f == BULKHEAD_NO_FUNCTION ? 0 : bulkhead_pci_bar(f, 0);
    if (bar >> 32 == 0 || bulkhead_map_everything() <= bar)
        return 21;
    bulkhead_pci_enable(f);
    return bulkhead_read32(bar + 8) >> 16 == 1 ? 0 : 22;
}

uint32_t bulkhead_main(struct bulkhead_context context)
{
    (void)context;
    uint32_t (*const steps[])(void) = {edu, card, above};
    /* Another's function is not there. */
    if (bulkhead_pci_read(3 << 3, BULKHEAD_PCI_ID) != BULKHEAD_PCI_ABSENT
        || bulkhead_pci_find(0x1AF4, 0x1042) != BULKHEAD_NO_FUNCTION)
        return 30;
    for (unsigned n = 0; n < 3; n++) {
        uint32_t wrong = steps[n]();
        if (wrong) {
            bulkhead_printf("pci-c: step %u does not work\n", wrong);
            return wrong;
        }
    }
    bulkhead_printf("pci-c: %u messages by MSI, %u by MSI-X\n", messages[0], messages[1]);
    return 0;
}
