/* PCI functions and the page tables that reach their registers, for bare guests: see
 * sdk/include/bulkhead.h. SPDX-License-Identifier: Apache-2.0 OR MIT */
#include <bulkhead.h>

enum { BUSES = 2, ADDRESS_PORT = 0xCF8, DATA_PORT = 0xCFC };

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

static void select(bulkhead_function function, uint8_t offset)
{
    bulkhead_outl(ADDRESS_PORT, 1u << 31 | (uint32_t)function << 8 | (offset & 0xFC));
}

uint32_t bulkhead_pci_read_by_ports(bulkhead_function function, uint8_t offset)
{
    select(function, offset);
    return bulkhead_inl(DATA_PORT);
}

void bulkhead_pci_write_by_ports(bulkhead_function function, uint8_t offset, uint32_t value)
{
    select(function, offset);
    bulkhead_outl(DATA_PORT, value);
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

/* Fixed, edge, physical destination (APM volume 2, 16.12). */
static uint32_t message(uint32_t apic_id)
{
    return 0xFEE00000u | (apic_id & 0xFF) << 12;
}

bool bulkhead_pci_msix(bulkhead_function function, unsigned number, uint32_t apic_id, uint8_t vector,
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
    bulkhead_set_handler(vector, handler);
    /* Masked while it changes (PCI 3.0, 6.8.2). */
    uint64_t entry = bar + (place & ~7u) + 16 * number;
    bulkhead_write32(entry + 12, 1);
    bulkhead_write32(entry, message(apic_id));
    bulkhead_write32(entry + 4, 0);
    bulkhead_write32(entry + 8, vector);
    bulkhead_write32(entry + 12, 0);
    bulkhead_pci_write(function, at, (bulkhead_pci_read(function, at) & ~mask_all) | enable);
    return true;
}

bool bulkhead_pci_msi(bulkhead_function function, uint32_t apic_id, uint8_t vector, bulkhead_handler handler)
{
    const uint32_t enable = 1u << 16, wide = 1u << 23;
    uint16_t at = bulkhead_pci_capability(function, BULKHEAD_PCI_MSI);
    if (!at)
        return false;
    uint32_t control = bulkhead_pci_read(function, at);
    bulkhead_pci_write(function, at, control & ~enable);
    bulkhead_set_handler(vector, handler);
    bulkhead_pci_write(function, at + 4, message(apic_id));
    if (control & wide)
        bulkhead_pci_write(function, at + 8, 0);
    bulkhead_pci_write(function, at + (control & wide ? 12 : 8), vector);
    bulkhead_pci_write(function, at, control | enable);
    return true;
}

/* Page tables. */

static uint64_t tables[7][512] __attribute__((aligned(4096)));

uint64_t bulkhead_map_everything(void)
{
    const uint64_t rights = 7, large = 1 << 7, gib = 1ul << 30;
    uint32_t a = 0x80000001, b, c = 0, d;
    __asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
    bool huge = d >> 26 & 1;
    tables[0][0] = (uint64_t)tables[1] | rights;
    if (huge)
        tables[0][1] = (uint64_t)tables[6] | rights;
    for (uint64_t n = 0; n < 512; n++) {
        if (huge) {
            tables[1][n] = n * gib | rights | large;
            tables[6][n] = (512 + n) * gib | rights | large;
        } else if (n < 4) {
            tables[1][n] = (uint64_t)tables[2 + n] | rights;
            for (uint64_t m = 0; m < 512; m++)
                tables[2 + n][m] = (n * gib + (m << 21)) | rights | large;
        }
    }
    __asm__ volatile("mov %0, %%cr3" ::"r"(tables) : "memory");
    return huge ? 1024 * gib : 4 * gib;
}
