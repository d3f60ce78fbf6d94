// Checks of larder.h from C: each takes the address of a running node and returns NULL, or what is wrong.
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

typedef const char* (*CAbiCheck)(const char* endpoint);
typedef struct CAbiCase {
  const char* name;
  CAbiCheck check;
} CAbiCase;
extern const CAbiCase kCAbiCases[];
extern const unsigned kCAbiCaseCount;

#ifdef __cplusplus
}
#endif
