/* Reads an encoder's folder; see encoder.h. */
#ifndef CLIENTS_ENCODER_WEIGHTS_H
#define CLIENTS_ENCODER_WEIGHTS_H

#include "encoder.h"

struct encoder_shape encoder_read_shape(const char *folder);
/* Fills in weights, qkv_weights and the places of all tensors, for the shape and dtype that the encoder has. */
void encoder_read_weights(struct encoder *encoder, const char *folder);

#endif
