/* PCI functions for bare guests: see sdk/include/bulkhead.h. SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "arch.h"

enum { BUSES = 2 };

static uint64_t page(bulkhead_function function)
{
    return BULKHEAD_ECAM_GPA + ((uint64_t)function << 12);
}

uint32_t bulkhead_pci_read(bulkhead_function function, uint16_t offset)
{
    return bulkhead_read32(page(function) + (offset & 0xFFC));
}

void bulkhead_pci_write(bulkhead_function function, uint16_t offset, uint32_t value)
{
    bulkhead_write32(page(function) + (offset & 0xFFC), value);
}

/* The first function of which these bits of a register have that value. */
static bulkhead_function find(uint16_t offset, unsigned shift, uint32_t wanted)
{
    for (uint32_t f = 0; f < BUSES << 8; f++) {
        if (bulkhead_pci_read((bulkhead_function)f, BULKHEAD_PCI_ID) == BULKHEAD_PCI_ABSENT)
            continue;
        if (bulkhead_pci_read((bulkhead_function)f, offset) >> shift == wanted)
            return (bulkhead_function)f;
    }
    return BULKHEAD_NO_FUNCTION;
}

bulkhead_function bulkhead_pci_find(uint16_t vendor, uint16_t device)
{
    return find(BULKHEAD_PCI_ID, 0, vendor | (uint32_t)device << 16);
}

bulkhead_function bulkhead_pci_find_class(uint32_t class_code)
{
    return find(BULKHEAD_PCI_CLASS, 8, class_code);
}

uint16_t bulkhead_pci_capability(bulkhead_function function, uint8_t id)
{
    uint16_t at = bulkhead_pci_read(function, BULKHEAD_PCI_CAPABILITIES) & 0xFC;
    /* A list of 48 entries fills the space: more would be a loop. */
    for (int n = 0; n < 48 && at >= 0x40; n++) {
        uint32_t head = bulkhead_pci_read(function, at);
        if ((uint8_t)head == id)
            return at;
        at = head >> 8 & 0xFC;
    }
    return 0;
}

uint64_t bulkhead_pci_bar(bulkhead_function function, unsigned number)
{
    uint16_t at = (uint16_t)(BULKHEAD_PCI_BAR + 4 * number);
    if (number > 5)
        return 0;
    uint32_t low = bulkhead_pci_read(function, at);
    if (low & 1)
        return 0;
    uint64_t high = (low >> 1 & 3) == 2 && number < 5 ? bulkhead_pci_read(function, at + 4) : 0;
    return high << 32 | (low & ~0xFu);
}

void bulkhead_pci_enable(bulkhead_function function)
{
    bulkhead_pci_write(function, BULKHEAD_PCI_COMMAND, BULKHEAD_PCI_MEMORY | BULKHEAD_PCI_BUS_MASTER);
}

unsigned bulkhead_pci_msix_vectors(bulkhead_function function)
{
    uint16_t at = bulkhead_pci_capability(function, BULKHEAD_PCI_MSIX);
    return at ? (bulkhead_pci_read(function, at) >> 16 & 0x7FF) + 1 : 0;
}

bool bulkhead_pci_msix(bulkhead_function function, unsigned number, uint32_t core, uint8_t interrupt,
                       bulkhead_handler handler)
{
    const uint32_t enable = 1u << 31, mask_all = 1u << 30;
    uint16_t at = bulkhead_pci_capability(function, BULKHEAD_PCI_MSIX);
    if (number >= bulkhead_pci_msix_vectors(function))
        return false;
    uint32_t place = bulkhead_pci_read(function, at + 4);
    uint64_t bar = bulkhead_pci_bar(function, place & 7);
    if (!bar)
        return false;
    const struct bulkhead_message message = bulkhead_arch_message(core, interrupt);
    bulkhead_set_handler(interrupt, handler);
    /* Masked while it changes (PCI 3.0, 6.8.2). */
    uint64_t entry = bar + (place & ~7u) + 16 * number;
    bulkhead_write32(entry + 12, 1);
    bulkhead_write32(entry, message.low);
    bulkhead_write32(entry + 4, message.high);
    bulkhead_write32(entry + 8, message.data);
    bulkhead_write32(entry + 12, 0);
    bulkhead_pci_write(function, at, (bulkhead_pci_read(function, at) & ~mask_all) | enable);
    return true;
}

bool bulkhead_pci_msi(bulkhead_function function, uint32_t core, uint8_t interrupt, bulkhead_handler handler)
{
    const uint32_t enable = 1u << 16, wide = 1u << 23;
    uint16_t at = bulkhead_pci_capability(function, BULKHEAD_PCI_MSI);
    if (!at)
        return false;
    uint32_t control = bulkhead_pci_read(function, at);
    bulkhead_pci_write(function, at, control & ~enable);
    const struct bulkhead_message message = bulkhead_arch_message(core, interrupt);
    bulkhead_set_handler(interrupt, handler);
    bulkhead_pci_write(function, at + 4, message.low);
    if (control & wide)
        bulkhead_pci_write(function, at + 8, message.high);
    bulkhead_pci_write(function, at + (control & wide ? 12 : 8), message.data);
    bulkhead_pci_write(function, at, control | enable);
    return true;
}
