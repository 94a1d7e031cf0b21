package payment

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	"example.com/watertight/platform/rpcerr"
	moneyv1 "example.com/watertight/proto/money/v1"
	paymentv1 "example.com/watertight/proto/payment/v1"
)

// GetPayment reads one payment.
func (s *Service) GetPayment(ctx context.Context, req *paymentv1.GetPaymentRequest) (*paymentv1.GetPaymentResponse, error) {
	id, err := uuid.Parse(req.GetOrderId())
	if err != nil {
		return nil, rpcerr.Invalid("order_id", "must be a UUID")
	}
	p, err := s.worker.store.payment(ctx, id)
	if errors.Is(err, errNoPayment) {
		return nil, rpcerr.New(codes.NotFound, rpcerr.NotFound, fmt.Sprintf("no payment was asked for order %s", id))
	}
	if err != nil {
		return nil, err
	}
	return &paymentv1.GetPaymentResponse{Payment: message(p)}, nil
}

func message(p payment) *paymentv1.Payment {
	m := &paymentv1.Payment{
		OrderId: p.orderID.String(), Status: statusMessage(p.status), Charged: p.charged, Refunded: p.refunded,
		CreatedAt: timestamppb.New(p.createdAt), UpdatedAt: timestamppb.New(p.updatedAt),
	}
	if p.amount > 0 { // else the order was cancelled before the amount was known
		m.Amount = &moneyv1.Money{Currency: p.currency, Minor: p.amount}
	}
	return m
}

func statusMessage(s status) paymentv1.PaymentStatus {
	switch s {
	case pending:
		return paymentv1.PaymentStatus_PAYMENT_STATUS_PENDING
	case charged:
		return paymentv1.PaymentStatus_PAYMENT_STATUS_CHARGED
	case declined:
		return paymentv1.PaymentStatus_PAYMENT_STATUS_DECLINED
	case refunded:
		return paymentv1.PaymentStatus_PAYMENT_STATUS_REFUNDED
	case cancelled:
		return paymentv1.PaymentStatus_PAYMENT_STATUS_CANCELLED
	}
	return paymentv1.PaymentStatus_PAYMENT_STATUS_UNSPECIFIED
}
