/* Replacement of libFuzzer: runs a fuzz target over given files, without a sanitizer or a nightly toolchain. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* libfuzzer-sys links it for custom mutators; these targets have none. */
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size) {
  (void)data, (void)size, (void)max_size;
  abort();
}

static int replay(const char *path) {
  FILE *file = fopen(path, "rb");
  if (!file) return perror(path), 1;
  size_t room = 1 << 20, size = 0, read;
  uint8_t *data = malloc(room);
  while (data && (read = fread(data + size, 1, room - size, file)) > 0) {
    size += read;
    if (size == room) data = realloc(data, room *= 2);
  }
  if (!data || ferror(file)) return fprintf(stderr, "%s: cannot be read\n", path), 1;
  fclose(file);
  LLVMFuzzerTestOneInput(data, size);
  free(data);
  return 0;
}

int main(int argc, char **argv) {
  LLVMFuzzerInitialize(&argc, &argv);
  LLVMFuzzerTestOneInput((const uint8_t *)"", 0);
  for (int i = 1; i < argc; i++)
    if (replay(argv[i])) return 1;
  printf("%d inputs replayed\n", argc - 1);
  return 0;
}
