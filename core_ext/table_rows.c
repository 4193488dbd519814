/* Loops over rows that were found: copying their values, stepping them, making new ones.
 *
 * The usual dimensions are constants in loops of their own: a row of 16 floats is one or two vector instructions,
 * and a loop that has to find that out costs more than they do.  (Only two of them for steps: there are 16 kinds
 * in three variants of each loop.)
 */
#include "table.h"

#include "variants.h"

#include <string.h>

#define EACH_USUAL_DIM(X) X(8) X(16) X(32) X(64)

EDLZ_PART ptrdiff_t copy_rows(const edlz_row_block *block, float *out, ptrdiff_t dim)
{
    ptrdiff_t unknown = 0;
    for (ptrdiff_t i = 0; i < block->count; i++) {
        if (block->rows[i]) {
            memcpy(out + i * dim, block->rows[i], (size_t)dim * sizeof(float));
        } else {
            edlz_initial_values(out + i * dim, &block->table->initializer, block->ids[i], dim);
            unknown++;
        }
    }
    return unknown;
}

EDLZ_KERNEL
ptrdiff_t edlz_rows_copy(const edlz_row_block *block, float *out)
{
#define COPY(usual)                                                                                            \
    case usual:                                                                                                \
        return copy_rows(block, out, usual);
    switch (block->table->dim) {
        EACH_USUAL_DIM(COPY)
    default:
        return copy_rows(block, out, block->table->dim);
    }
#undef COPY
}

#define STEP_ROWS(kind, function)                                                                              \
    EDLZ_PART void step_##function(const edlz_row_block *block, const edlz_step *step,                         \
                                   const float *gradients, ptrdiff_t dim)                                      \
    {                                                                                                          \
        const edlz_slot *slots = block->table->slots;                                                          \
        for (ptrdiff_t i = 0; i < block->count; i++) {                                                         \
            float *row = block->rows[i];                                                                       \
            float *const row_slots[EDLZ_MAX_SLOTS] = {row + slots[0].offset, row + slots[1].offset,            \
                                                      row + slots[2].offset};                                  \
            edlz_step_##function(row, row, row_slots, gradients + i * dim, step, dim);                         \
        }                                                                                                      \
    }                                                                                                          \
    EDLZ_KERNEL                                                                                                \
    static void step_rows_##function(const edlz_row_block *block, const edlz_step *step,                       \
                                     const float *gradients)                                                   \
    {                                                                                                          \
        switch (block->table->dim) {                                                                           \
        case 16:                                                                                               \
            step_##function(block, step, gradients, 16);                                                       \
            break;                                                                                             \
        case 64:                                                                                               \
            step_##function(block, step, gradients, 64);                                                       \
            break;                                                                                             \
        default:                                                                                               \
            step_##function(block, step, gradients, block->table->dim);                                        \
        }                                                                                                      \
    }

EDLZ_EACH_KIND(STEP_ROWS)

edlz_rows_step *edlz_rows_stepper(int32_t kind)
{
#define STEPPER(kind, function) [kind] = step_rows_##function,
    static edlz_rows_step *const steppers[EDLZ_KINDS] = {EDLZ_EACH_KIND(STEPPER)};
#undef STEPPER
    return steppers[kind];
}

void edlz_row_make(const edlz_table *table, uint64_t number, int64_t id)
{
    float *row = edlz_row(table, number);
    edlz_initial_values(row, &table->initializer, id, table->dim);
    for (int s = 0; s < table->slot_count; s++)
        for (ptrdiff_t i = 0; i < table->slots[s].size; i++)
            row[table->slots[s].offset + i] = table->slots[s].initial;
    edlz_row_ids(table)[number] = id;
}
